"""Functions on variables of a program."""

from fleetx.static.nn.functional import *  # noqa: F403
from paddle._coverage import exported, missing

# Paddle offers it as a layer only.
del group_norm  # noqa: F821

__all__ = exported(globals())
__getattr__ = missing(__name__)
