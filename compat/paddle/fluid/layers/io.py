"""Where data enters a program."""

from fleetx.static.layers import data, load
from fleetx.static.readers.py_reader import *  # noqa: F403
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
