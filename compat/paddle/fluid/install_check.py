"""Does the installation work?"""

from fleetx.static.run.self_check import run_check
