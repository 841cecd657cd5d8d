"""Profiling of runs."""

from fleetx.static.run.profiler import *  # noqa: F403
