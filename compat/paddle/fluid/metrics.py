"""Measures kept outside of programs."""

from fleetx.static.metrics.metrics_of_1x import *  # noqa: F403
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
