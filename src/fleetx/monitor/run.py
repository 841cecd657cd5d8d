"""The measured run of this process, started by the environment or by a script.

Measuring starts with `fleet.init()` if a log folder is set (fleetrun --log_dir, or
FLEETX_LOG_DIR) or FLEETX_MONITOR=1, and with `monitor.watch`; FLEETX_MONITOR=0 disables it.
"""

from __future__ import annotations

import atexit
import json
import platform
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fleetx
from fleetx.checkpoint import atomic
from fleetx.monitor import clock, trace
from fleetx.monitor.event_files import EventFiles
from fleetx.monitor.files import FACTS, event_folder, step_file
from fleetx.monitor.progress import Progress
from fleetx.monitor.recorder import Recorder, Taker
from fleetx.monitor.step_file import StepFile
from fleetx.monitor.targets import targets
from fleetx.monitor.timeline import Timeline
from fleetx.runtime import environment, heartbeat


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure and where to write it."""

    rank: int = 0
    workers: int = 1
    log_dir: Path | None = None
    """Where to write the measurements; None to disable them."""
    timeline: Path | None = None
    """Where to write the timeline; None to disable it."""
    timeline_steps: int = 100
    tensorboard: bool = False
    progress: bool = False
    """Whether worker 0 shows a progress line."""
    run: str = ""
    """The identifier of this run among others in the same folder."""
    has_group: bool = True
    """Whether workers can communicate, to compare their clocks."""

    @property
    def anything(self) -> bool:
        """Whether anything is enabled."""
        return self.progress or self.log_dir is not None or self.timeline is not None


def asked_settings(**more: Any) -> Settings:
    """Return the settings from the environment."""
    switch = environment.monitor_switch()
    if switch == "0":
        return Settings(**more)
    tensorboard = environment.tensorboard_switch()
    named = environment.log_dir() or ("log" if switch == "1" or tensorboard else "")
    timeline = environment.timeline()
    where = (named or "log") if timeline == "1" else timeline
    return Settings(
        log_dir=Path(named) if named else None,
        timeline=Path(where) if where else None,
        timeline_steps=environment.timeline_steps(),
        tensorboard=tensorboard,
        progress=environment.progress_switch() == "1",
        run=environment.run_name(),
        **more,
    )


class Run:
    """A measured run."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.progress: Progress | None = None
        self._timeline: Timeline | None = None
        folder, rank = settings.log_dir, settings.rank
        about = {
            "run": settings.run,
            "rank": rank,
            "workers": settings.workers,
            "host": socket.gethostname(),
            "time": time.time(),
        }
        takers: list[Taker] = []
        if folder is not None:
            takers.append(StepFile(step_file(folder, rank), about))
            if settings.tensorboard:
                takers.append(EventFiles(event_folder(folder, rank)))
            if rank == 0:
                _write_facts(folder, self._facts())
        if settings.timeline is not None:
            offset = clock.align() if settings.has_group else clock.wall_clock_offset()
            self._timeline = Timeline(
                settings.timeline, rank, about, offset, settings.timeline_steps
            )
        self.recorder = Recorder(takers, self._timeline)
        if settings.progress:
            self.show_progress()
        heartbeat.listen(self.recorder.waited)
        targets.listen(self.recorder)

    def _facts(self) -> dict[str, Any]:
        import torch

        from fleetx.comm.device import gpu_count

        return {
            "run": self.settings.run,
            "started": time.time(),
            "workers": self.settings.workers,
            "command": sys.argv,
            "host": socket.gethostname(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "fleetx": fleetx.__version__,
            "cuda": torch.version.cuda if gpu_count() else None,
            "threads": torch.get_num_threads(),
            "strategy": [dict(row) for row in _described],
        }

    def show_progress(self) -> None:
        """Show a progress line on worker 0 from now on."""
        wanted = environment.progress_switch() != "0" and self.settings.rank == 0
        if wanted and (self.progress is None or not self.progress.is_open):
            self.progress = Progress(self.settings.workers)
            self.recorder.add(self.progress)

    def describe(self) -> None:
        """Write the composed strategy to the run's facts."""
        if self.settings.log_dir is not None and self.settings.rank == 0:
            _write_facts(self.settings.log_dir, self._facts())

    def stop(self) -> None:
        """Stop measuring: remove all hooks and complete the files."""
        targets.listen(None)
        heartbeat.listen(None)
        self.recorder.close()
        if self._timeline is not None:
            self._timeline.close()
            if self.settings.rank == 0:
                assert self.settings.timeline is not None
                trace.wait_for_ends(self.settings.timeline)
                trace.write_trace(self.settings.timeline)


def _write_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    # Read while the job runs and after it; not worth waiting for the disk in every `fleet.init`.
    atomic.write_bytes(folder / FACTS, json.dumps(facts, indent=1).encode(), durable=False)


_current: Run | None = None
_described: Sequence[Mapping[str, Any]] = ()


def current() -> Run | None:
    """Return the measured run, if there is one."""
    return _current


def start(settings: Settings) -> Run:
    """Start measuring; an active run is stopped first."""
    global _current
    stop()
    _current = Run(settings)
    atexit.register(stop)
    return _current


def stop() -> None:
    """Stop measuring, if a run is active."""
    global _current
    run, _current = _current, None
    if run is not None:
        atexit.unregister(stop)
        run.stop()


def begin_session() -> Settings | None:
    """Forget earlier targets and return the environment's settings; called by `fleet.init`."""
    global _described
    targets.forget()
    _described = ()
    settings = asked_settings()
    return settings if settings.anything else None


def describe(rows: Sequence[Mapping[str, Any]]) -> None:
    """Store the composed strategy: one row per stage and technique."""
    global _described
    _described = rows
    if _current is not None:
        _current.describe()
