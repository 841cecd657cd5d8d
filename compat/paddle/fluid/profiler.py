"""Profiling of runs."""

from fleetx.static.profiler import (
    cuda_profiler,
    profiler,
    reset_profiler,
    start_profiler,
    stop_profiler,
)
from paddle._coverage import missing

__all__ = ["cuda_profiler", "profiler", "reset_profiler", "start_profiler", "stop_profiler"]

__getattr__ = missing(__name__)
