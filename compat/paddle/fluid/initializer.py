"""First values of parameters."""

from fleetx.static.initializer import *  # noqa: F403
