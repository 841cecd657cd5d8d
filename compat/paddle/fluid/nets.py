"""Small nets of several layers."""

from fleetx.static.nets import *  # noqa: F403
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
