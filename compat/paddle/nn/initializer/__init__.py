"""First values of parameters."""

from fleetx.static.nn.initializer import *  # noqa: F403
