"""The processes of this machine as one group: started, monitored and stopped together.

A process with restarts left is started again as soon as its failure is detected.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fleetx.launch import failure, fault_dump
from fleetx.launch.console import log
from fleetx.launch.forking import Process, WarmParent, is_python
from fleetx.launch.launch_errors import LaunchError
from fleetx.launch.processes import die_with_parent, end_all, reap_orphans
from fleetx.runtime import heartbeat

# A failing worker causes others to fail; wait this long to find out which one was first.
_SETTLE = 0.3
# A process closes its connections before it ends. On a busy machine the others may end earlier: if
# only they have, wait this long for the cause.
_SETTLE_ON_CAUSE = 3.0
_POLL = 0.05


@dataclass(frozen=True)
class ProcessSpec:
    """A process to start."""

    rank: int
    command: Sequence[str]
    environment: dict[str, str]
    log: Path
    heartbeat: Path
    stacks: Path | None = None
    """Where the process writes its stack on demand; None if it does not support that."""
    role: str = "rank"
    """The process's kind in messages: rank, worker or server."""
    cpus: frozenset[int] = frozenset()
    """The cores it runs on; empty for all."""
    restarts: int = 0
    """The maximum number of restarts: of a server that was killed, of a worker that failed."""

    @property
    def name(self) -> str:
        """The name of this process in messages."""
        return f"{self.role} {self.rank}"

    def traced_to(self, file: Path) -> ProcessSpec:
        """Return this process with `file` for its stacks, if its command has a place for it."""
        if "{stacks}" not in self.command:
            return self
        command = [part.replace("{stacks}", str(file)) for part in self.command]
        return replace(self, command=command, stacks=file)


@dataclass(frozen=True)
class Worker:
    """A started process."""

    spec: ProcessSpec
    process: Process
    offset: int
    """The offset in its log at which this run begins."""
    restarted: int = 0
    """The number of restarts so far."""

    @property
    def failed(self) -> bool:
        """Whether the process has ended with a failure."""
        return self.process.returncode not in (None, 0)

    @property
    def comes_back(self) -> bool:
        """Whether the process failed in a way that a restart can fix, and has restarts left."""
        if not self.failed or self.restarted >= self.spec.restarts:
            return False
        # A server that failed with an error of its own would fail again.
        return self.process.returncode < 0 or self.spec.role != "server"


class Group:
    """All processes of one attempt on this machine."""

    def __init__(
        self, specs: Sequence[ProcessSpec], host: str, parent: WarmParent | None = None
    ) -> None:
        """`parent` forks processes that run a Python script; None: all are started one by one."""
        self._host = host
        self._parent = parent
        self._memory = failure.MemoryKills()
        self._failed_since: float | None = None
        self._stopping = False
        self._retired: set[Path] = set()
        self._given_up: set[Path] = set()
        # Standard input goes to the first process that trains.
        self._reader = next((spec for spec in specs if spec.role != "server"), None)
        self.workers: list[Worker] = []
        for spec in specs:
            self.workers.append(_start(spec, parent, takes_input=spec is self._reader))

    def poll(self) -> None:
        """Check which processes have ended and restart those that may be restarted."""
        for process in (self._parent, *(worker.process for worker in self.workers)):
            if process is not None:
                process.poll()
        own = [] if self._parent is None else [self._parent.pid]
        reap_orphans(keep=[*own, *(worker.process.pid for worker in self.workers)])
        if self._stopping:
            return
        for index, worker in enumerate(self.workers):
            if self._comes_back(worker):
                self.workers[index] = self._again(worker)
        if self._failed_since is None and any(map(self._is_failure, self.workers)):
            self._failed_since = time.monotonic()

    def add(self, specs: Sequence[ProcessSpec]) -> None:
        """Start further processes."""
        self.workers += [_start(spec, self._parent, takes_input=False) for spec in specs]

    def retire(self, specs: Sequence[ProcessSpec]) -> None:
        """Mark processes as no longer needed: their exit codes are ignored."""
        self._retired |= {spec.log for spec in specs}

    def is_over(self, specs: Sequence[ProcessSpec]) -> bool:
        """Return whether all of these processes have ended."""
        logs = {spec.log for spec in specs}
        return all(w.process.returncode is not None for w in self.workers if w.spec.log in logs)

    def _comes_back(self, worker: Worker) -> bool:
        return worker.comes_back and worker.spec.log not in self._retired

    def _is_failure(self, worker: Worker) -> bool:
        """Return whether the end of a process is the end of the job."""
        return worker.failed and worker.spec.log not in self._retired

    def _continue_without(self, worker: Worker) -> None:
        """Give up a worker of an elastic job that has no restarts left."""
        if worker.spec.log not in self._given_up:
            self._given_up.add(worker.spec.log)
            log.warning(
                "%s has no restarts left (--max_restart %d): training continues without it.",
                worker.spec.name.capitalize(),
                worker.spec.restarts,
            )

    def _again(self, worker: Worker) -> Worker:
        manner = failure.manner(worker.process.returncode, self._memory.happened())
        log.warning(
            "%s on %s: %s. It is restarted (restart %d of %d).",
            worker.spec.name.capitalize(),
            self._host,
            manner,
            worker.restarted + 1,
            worker.spec.restarts,
        )
        restarted = worker.restarted + 1
        environment = {**worker.spec.environment, "FLEETX_RESTART_COUNT": str(restarted)}
        spec = replace(worker.spec, environment=environment)
        again = _start(spec, self._parent, takes_input=False)
        return replace(again, restarted=restarted)

    @property
    def completed(self) -> bool:
        """Whether all processes that train have succeeded, except for those given up."""
        trained = [w for w in self.workers if w.spec.role != "server"]
        return all(w.process.returncode == 0 for w in trained if w.spec.log not in self._given_up)

    @property
    def trains(self) -> bool:
        """Whether any process on this machine trains."""
        return self._reader is not None

    @property
    def has_servers(self) -> bool:
        """Whether servers on this machine are still running."""
        return any(w.spec.role == "server" and w.process.returncode is None for w in self.workers)

    def wait_for_servers(self, seconds: float, hurry: Callable[[], bool]) -> None:
        """Wait up to `seconds` for the servers to exit, after the workers have finished."""
        self._stopping = True
        deadline = time.monotonic() + seconds
        while self.has_servers and not hurry() and time.monotonic() < deadline:
            self.poll()
            time.sleep(_POLL)

    def _failure_of(self, worker: Worker) -> failure.Failure:
        return failure.of_worker(
            worker.spec.name,
            self._host,
            worker.process.returncode,
            worker.spec.log,
            worker.offset,
            self._memory.happened(),
            fault_dump.exception(worker.spec.stacks),
        )

    def failure(self) -> failure.Failure | None:
        """Return the first failure, once it is certain which one that was."""
        if self._failed_since is None or time.monotonic() < self._failed_since + _SETTLE:
            return None
        first = failure.first(
            self._failure_of(worker) for worker in self.workers if self._is_failure(worker)
        )
        settled = time.monotonic() > self._failed_since + _SETTLE_ON_CAUSE
        if failure.is_consequence(first) and not settled and self._is_running:
            return None
        return first

    @property
    def _is_running(self) -> bool:
        return any(worker.process.returncode is None for worker in self.workers)

    def stop(self, signum: int, grace: float, hurry: Callable[[], bool]) -> None:
        """Stop all processes and their descendants."""
        self._stopping = True
        left = end_all(signum, grace, self.poll, hurry)
        if left:
            raise LaunchError(
                f"These processes survive even SIGKILL: {', '.join(map(str, left))}.", 1
            )


def _prepare(parent: int, cpus: frozenset[int]) -> None:
    """Prepare a process before it runs its program: die with the parent, and pin it to these
    cores.
    """
    die_with_parent(parent, signal.SIGKILL)
    if cpus:
        os.sched_setaffinity(0, cpus)


def _start(spec: ProcessSpec, parent: WarmParent | None, takes_input: bool) -> Worker:
    heartbeat.prepare(spec.heartbeat)
    with spec.log.open("ab") as file:
        offset = file.tell()  # read before the worker's writes move it
        if parent is not None and is_python(spec.command):
            with open(0 if takes_input else os.devnull, "rb", 0, closefd=not takes_input) as stdin:
                files = (stdin.fileno(), file.fileno())
                forked = parent.start(spec.command, spec.environment, files, spec.cpus)
            if forked is not None:
                return Worker(spec, forked, offset)
            log.warning("%s is started as a new process: forking is no longer possible.", spec.name)
        try:
            process = subprocess.Popen(
                spec.command,
                env=spec.environment,
                stdin=None if takes_input else subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(_prepare, os.getpid(), spec.cpus),
            )
        except OSError as error:
            raise LaunchError(f"{spec.command[0]} cannot be started: {error.strerror}.") from error
        return Worker(spec, process, offset)
