"""Does the installation work?"""

from fleetx.static.run.self_check import run_check
from paddle._coverage import missing

__all__ = ["run_check"]

__getattr__ = missing(__name__)
