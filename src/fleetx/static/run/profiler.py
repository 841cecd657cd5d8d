"""Profiling of runs: torch's profiler under the names of `fluid.profiler`.

Stopping prints a table of ops by time and writes a trace for chrome://tracing or Perfetto.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch.profiler

from fleetx.comm import device
from fleetx.exports import export_defined

_STATES = ("CPU", "GPU", "All")
# The sort keys in torch's terms; torch has no column for `max` and `min`.
_SORT_KEYS = {
    None: "cpu_time_total",
    "default": "cpu_time_total",
    "total": "cpu_time_total",
    "calls": "count",
    "ave": "cpu_time",
    "max": "cpu_time_total",
    "min": "cpu_time_total",
}
_OPTIONS = ("Serial", "Default", "OpDetail", "AllOpDetail")

_running: torch.profiler.profile | None = None


def start_profiler(state: str, tracer_option: str = "Default") -> None:
    """Start to record ops on the 'CPU', the 'GPU', or 'All'."""
    global _running
    if state not in _STATES:
        raise ValueError(f"state of the profiler must be one of {_STATES}, not {state!r}.")
    if tracer_option not in _OPTIONS:
        raise ValueError(f"tracer_option must be one of {_OPTIONS}, not {tracer_option!r}.")
    if _running is not None:
        return
    activities = [torch.profiler.ProfilerActivity.CPU]
    if state != "CPU" and device.gpu_count():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    _running = torch.profiler.profile(
        activities=activities, record_shapes=tracer_option in ("OpDetail", "AllOpDetail")
    )
    _running.__enter__()


def stop_profiler(sorted_key: str | None = None, profile_path: str = "/tmp/profile") -> None:
    """Stop recording, print a table of ops and write the trace to `profile_path`."""
    global _running
    if sorted_key not in _SORT_KEYS:
        names = ", ".join(str(key) for key in _SORT_KEYS)
        raise ValueError(f"sorted_key of the profiler must be one of {names}, not {sorted_key!r}.")
    if _running is None:
        return
    done, _running = _running, None
    done.__exit__(None, None, None)
    print(done.key_averages().table(sort_by=_SORT_KEYS[sorted_key], row_limit=50), flush=True)
    done.export_chrome_trace(profile_path)


def reset_profiler() -> None:
    """Discard what has been recorded so far."""
    global _running
    if _running is None:
        return
    old = _running
    old.__exit__(None, None, None)
    _running = torch.profiler.profile(activities=old.activities, record_shapes=old.record_shapes)
    _running.__enter__()


@contextlib.contextmanager
def profiler(
    state: str,
    sorted_key: str | None = None,
    profile_path: str = "/tmp/profile",
    tracer_option: str = "Default",
) -> Iterator[None]:
    """Record the ops that run inside the block; see `start_profiler` and `stop_profiler`."""
    start_profiler(state, tracer_option)
    try:
        yield
    finally:
        stop_profiler(sorted_key, profile_path)


@contextlib.contextmanager
def cuda_profiler(
    output_file: str, output_mode: str | None = None, config: Any = None
) -> Iterator[None]:
    """Record what runs on CUDA inside the block and write the trace to `output_file`."""
    if output_mode not in (None, "kvp", "csv"):
        raise ValueError(f"output_mode must be 'kvp' or 'csv', not {output_mode!r}.")
    if not device.gpu_count():
        raise RuntimeError("cuda_profiler needs a CUDA device; use profiler('CPU').")
    with profiler("GPU", profile_path=output_file):
        yield


export_defined(globals())
