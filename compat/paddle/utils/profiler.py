"""Profiling of a range of steps."""

from fleetx.static.run.profiled_steps import Profiler, ProfilerOptions, get_profiler
from fleetx.static.run.profiler import (
    cuda_profiler,
    profiler,
    reset_profiler,
    start_profiler,
    stop_profiler,
)
