"""Hang detection: how long the workers of one machine have made no progress, and the limit.

Signs of progress are completed steps, runs of models and programs, and lines of output. With
`--hang_timeout` the limit is fixed. Without it, a hang needs evidence: no sign of progress for ten
times the longest step so far and at least a minute, no worker that computes or is in a call of
unlimited duration (see `whereabouts`), and a worker that waits for others in a collective. If a
worker is idle outside of any collective, the limit is ten times as long.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fleetx.launch import whereabouts
from fleetx.launch.failure import Failure
from fleetx.launch.group import Worker
from fleetx.launch.processes import cpu_seconds
from fleetx.launch.records import checked
from fleetx.launch.whereabouts import Place
from fleetx.runtime import heartbeat

LEAST = 60.0
"""Minimum seconds without progress, however short the steps were."""
_FACTOR = 10.0
# Waiting workers use far less than this fraction of a core.
_COMPUTES = 0.02
_LOOK_EVERY = 0.5
# A longer time between two polls means that this process, or the machine, was suspended.
_SUSPENDED = 5.0


@dataclass(frozen=True)
class Idle:
    """The seconds without progress on one machine, and where its workers were at that time."""

    seconds: float = 0.0
    longest: float = 0.0
    """The duration of the longest step so far."""
    counts: bool = True
    """Whether the machine has workers that train."""
    exempt: bool = False
    """Whether a worker computes, or is in a call of unlimited duration."""
    waits: bool = False
    """Whether a worker waits in a collective."""
    elsewhere: bool = False
    """Whether a worker is idle outside of any collective."""
    frozen: tuple[str, ...] = ()
    """The workers that were stopped by a signal."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return {**asdict(self), "frozen": list(self.frozen)}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Idle:
        """Read what `to_json` wrote; raise ValueError for anything else."""
        kinds = {"seconds": float, "longest": float, "frozen": tuple}
        flags = dict.fromkeys(("counts", "exempt", "waits", "elsewhere"), bool)
        return cls(**checked(record, {**kinds, **flags}))


def hang_of(machines: Sequence[Idle], timeout: float | None, host: str) -> Failure | None:
    """Return a failure if the workers of all machines together hang.

    `timeout` is that of --hang_timeout: None if it was not given, 0 to never report a hang.
    """
    found = [idle for idle in machines if idle.counts]
    limit = _limit(found) if timeout is None else timeout or None
    seconds = min((idle.seconds for idle in found), default=0.0)
    if limit is None or seconds < limit:
        return None
    reason = f"--hang_timeout {limit:g}"
    if timeout is None:
        longest = max(idle.longest for idle in found)
        reason = f"the longest step took {longest:.1f} s; --hang_timeout sets a fixed limit, 0 none"
    frozen = [name for idle in found for name in idle.frozen]
    ending = f" Frozen by a signal: {', '.join(frozen)}." if frozen else ""
    sentence = (
        f"No worker made a step or wrote a line for {seconds:.0f} s ({reason}); the ranks' stacks "
        f"are printed above.{ending}"
    )
    return Failure(kind="hang", host=host, sentence=sentence, code=1)


def _limit(machines: Sequence[Idle]) -> float | None:
    if any(idle.exempt for idle in machines) or not any(idle.waits for idle in machines):
        return None
    limit = _least(max(idle.longest for idle in machines))
    return limit * _FACTOR if any(idle.elsewhere for idle in machines) else limit


def _least(longest: float) -> float:
    return max(LEAST, _FACTOR * longest)


class Progress:
    """Monitor of the processes of one machine."""

    def __init__(self, workers: Sequence[Worker], timeout: float | None) -> None:
        self._all = workers  # the group replaces those that it restarts
        self._timeout = timeout
        now = time.monotonic()
        self._since = self._called = self._looked = now
        self._signs: list[tuple[int, int]] | None = None
        self._steps: dict[int, tuple[int, float]] = {}  # per worker: count, and when it changed
        self._longest = 0.0
        # When the current measurement of processor time began, and the time used by then.
        self._window: tuple[float, float] | None = None
        self._idle = Idle()
        self._look(now)

    def idle(self) -> Idle:
        """Return the seconds without progress as of the last poll of the workers."""
        now = time.monotonic()
        if now - self._called > _SUSPENDED:
            self._excuse(now - self._called)
        self._called = now
        if now - self._looked >= _LOOK_EVERY:
            self._looked = now
            self._look(now)
        return self._idle

    def _excuse(self, seconds: float) -> None:
        """Exclude a period in which no worker could make progress."""
        self._since += seconds
        self._steps = {rank: (count, at + seconds) for rank, (count, at) in self._steps.items()}
        self._window = None

    def _look(self, now: float) -> None:
        workers = [w for w in self._all if w.spec.role != "server" and w.process.returncode is None]
        signs = []
        for worker in workers:
            pulse = heartbeat.read(worker.spec.heartbeat)
            signs.append((pulse.signs, _size(worker)))
            self._note_step(worker.spec.rank, pulse.steps, now)
        if signs != self._signs:
            self._signs, self._since, self._window = signs, now, None
            self._idle = Idle(counts=bool(workers))
        seconds = now - self._since
        if self._timeout is not None:
            frozen = whereabouts.frozen(workers) if seconds >= self._timeout else ()
            self._idle = Idle(seconds, self._longest, bool(workers), frozen=frozen)
        elif workers:
            self._examine(workers, now, seconds)

    def _note_step(self, rank: int, steps: int, now: float) -> None:
        count, at = self._steps.get(rank, (0, now))
        if steps != count:
            if 0 < count < steps:
                self._longest = max(self._longest, now - at)
            self._steps[rank] = steps, now

    def _examine(self, workers: Sequence[Worker], now: float, seconds: float) -> None:
        """Determine where the workers are, once per measurement window of processor time."""
        limit = _least(self._longest)
        if seconds < limit / 2:
            return
        pids = [worker.process.pid for worker in workers]
        if self._window is None:
            self._window = now, cpu_seconds(pids)
            return
        began, before = self._window
        if now - began < max(limit, seconds / 2) / 2:
            return
        used = cpu_seconds(pids)
        self._window = now, used
        if used - before > _COMPUTES * (now - began):
            self._idle = Idle(seconds, self._longest, exempt=True)
            return
        places = whereabouts.places(workers)
        self._idle = Idle(
            seconds,
            self._longest,
            exempt=Place.EXEMPT in places,
            waits=Place.COLLECTIVE in places,
            elsewhere=Place.ELSEWHERE in places,
            frozen=whereabouts.frozen(workers),
        )


def _size(worker: Worker) -> int:
    try:
        return worker.spec.log.stat().st_size
    except FileNotFoundError:  # removed by the user
        return 0
