"""A profiler for a range of steps."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from fleetx.static.run.profiler import reset_profiler, start_profiler, stop_profiler

_DEFAULTS: dict[str, Any] = {
    "state": "All",
    "sorted_key": "default",
    "tracer_level": "Default",
    "batch_range": [0, sys.maxsize],
    "output_thread_detail": False,
    "profile_path": "none",
    "timeline_path": "none",
    "op_summary_path": "none",
}


class ProfilerOptions:
    """Settings of a Profiler by name; the others have defaults."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        unknown = sorted(set(options or ()) - set(_DEFAULTS))
        if unknown:
            raise ValueError(
                f"ProfilerOptions has no {', '.join(unknown)}; it takes {', '.join(_DEFAULTS)}."
            )
        self.options = {**_DEFAULTS, **(options or {})}

    def with_state(self, state: str) -> ProfilerOptions:
        """Set the state, CPU, GPU or All, and return these options."""
        self.options["state"] = state
        return self

    def __getitem__(self, name: str) -> Any:
        if name not in self.options:
            raise ValueError(f"ProfilerOptions has no {name}; it takes {', '.join(self.options)}.")
        value = self.options[name]
        return None if isinstance(value, str) and value == "none" else value


_current: Profiler | None = None


class Profiler:
    """Profiles the steps within `batch_range`, counted by `record_step`."""

    def __init__(self, enabled: bool = True, options: ProfilerOptions | None = None) -> None:
        self.profiler_options = ProfilerOptions() if options is None else options
        self.batch_id, self.enabled, self._is_running = 0, enabled, False

    def __enter__(self) -> Profiler:
        global _current
        self._previous, _current = _current, self
        if self.enabled and self._is_wanted():
            self.start()
        return self

    def __exit__(self, *error: object) -> None:
        global _current
        _current = self._previous
        if self.enabled:
            self.stop()

    def _is_wanted(self) -> bool:
        first, last = self.profiler_options["batch_range"]
        return first <= self.batch_id < last

    def start(self) -> None:
        """Start profiling; a running profiler continues."""
        if self.enabled and not self._is_running:
            options = self.profiler_options
            start_profiler(options["state"], options["tracer_level"])
            self._is_running = True

    def stop(self) -> None:
        """Stop profiling and print the table; do nothing if it is not running."""
        if self.enabled and self._is_running:
            options = self.profiler_options
            stop_profiler(options["sorted_key"], options["profile_path"] or "/tmp/profile")
            self._is_running = False

    def reset(self) -> None:
        """Discard what has been recorded so far."""
        if self.enabled and self._is_running:
            reset_profiler()

    def record_step(self, change_profiler_status: bool = True) -> None:
        """Count a step; start or stop at the ends of the range."""
        self.batch_id += 1
        if not self.enabled or not change_profiler_status:
            return
        if self._is_wanted():
            self.start()
        else:
            self.stop()


def get_profiler() -> Profiler:
    """Return the profiler of the innermost `with`, or a new one."""
    return Profiler() if _current is None else _current
