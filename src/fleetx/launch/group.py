"""The workers of this machine as one group: started together, watched, stopped together."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fleetx.launch import failure, heartbeat
from fleetx.launch.errors import LaunchError
from fleetx.launch.processes import die_with_parent, end_all, reap_orphans

# A failing worker drags others down; they are given this long to show who was first.
_SETTLE = 0.3
_LOOK_EVERY = 0.5


@dataclass(frozen=True)
class ProcessSpec:
    """One process to start. Roles besides workers need only another environment and log."""

    rank: int
    command: Sequence[str]
    environment: dict[str, str]
    log: Path
    heartbeat: Path
    stacks: Path | None = None
    """Where the process writes its stack on demand; None if it cannot."""


@dataclass(frozen=True)
class Worker:
    """A started process."""

    spec: ProcessSpec
    process: subprocess.Popen[bytes]
    offset: int
    """Where in its log this run begins."""

    @property
    def failed(self) -> bool:
        """Whether it has ended, and badly."""
        return self.process.returncode not in (None, 0)


class Group:
    """All workers of one attempt on this machine."""

    def __init__(self, specs: Sequence[ProcessSpec], host: str) -> None:
        self._host = host
        self._memory = failure.MemoryKills()
        self._failed_since: float | None = None
        self.workers: list[Worker] = []
        for index, spec in enumerate(specs):
            self.workers.append(_start(spec, takes_input=index == 0))

    def poll(self) -> None:
        """Look which workers have ended."""
        for worker in self.workers:
            worker.process.poll()
        reap_orphans(keep=[worker.process.pid for worker in self.workers])
        if self._failed_since is None and any(worker.failed for worker in self.workers):
            self._failed_since = time.monotonic()

    @property
    def completed(self) -> bool:
        """Whether all workers have ended well."""
        return all(worker.process.returncode == 0 for worker in self.workers)

    def failure(self) -> failure.Failure | None:
        """Return the first failure, once it is clear which one that was."""
        if self._failed_since is None or time.monotonic() < self._failed_since + _SETTLE:
            return None
        out_of_memory = self._memory.happened()
        return failure.first(
            failure.of_worker(
                worker.spec.rank,
                self._host,
                worker.process.returncode,
                worker.spec.log,
                worker.offset,
                out_of_memory,
            )
            for worker in self.workers
            if worker.failed
        )

    def stop(self, signum: int, grace: float, hurry: Callable[[], bool]) -> None:
        """End all workers and whatever they have started."""
        left = end_all(signum, grace, self.poll, hurry)
        if left:
            raise LaunchError(
                f"These processes do not end, not even by SIGKILL: {', '.join(map(str, left))}.", 1
            )


def _start(spec: ProcessSpec, takes_input: bool) -> Worker:
    heartbeat.prepare(spec.heartbeat)
    with spec.log.open("ab") as log:
        offset = log.tell()  # now: afterwards the worker's writes move it
        try:
            process = subprocess.Popen(
                spec.command,
                env=spec.environment,
                stdin=None if takes_input else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGKILL),
            )
        except OSError as error:
            raise LaunchError(f"{spec.command[0]} cannot be started: {error.strerror}.") from error
        return Worker(spec, process, offset)


class Progress:
    """Sees whether any worker makes steps or writes lines."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self._seen = self._look()
        self._since = self._looked = time.monotonic()

    def idle(self) -> float:
        """Return the seconds since the last sign of progress."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_EVERY:
            self._looked = now
            seen = self._look()
            if seen != self._seen:
                self._seen, self._since = seen, now
        return now - self._since

    def _look(self) -> list[tuple[int, int]]:
        return [
            (heartbeat.read(worker.spec.heartbeat).steps, worker.spec.log.stat().st_size)
            for worker in self._workers
        ]
