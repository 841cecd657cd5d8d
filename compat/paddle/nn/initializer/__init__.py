"""First values of parameters."""

from fleetx.static.nn.initializer import *  # noqa: F403
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
