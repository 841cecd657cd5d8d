"""Writers of MultiSlot text."""

from fleetx.data.data_generator import *  # noqa: F403
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
