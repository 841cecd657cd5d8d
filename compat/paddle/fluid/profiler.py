"""Profiling of runs."""

from fleetx.static.run.profiler import *  # noqa: F403
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
