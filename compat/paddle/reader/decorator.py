"""Functions from readers to readers."""

from fleetx.static.readers.decorator import *  # noqa: F403
from fleetx.static.readers.multiprocess import multiprocess_reader
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
