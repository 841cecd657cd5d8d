"""`fleetrun --elastic` with parameter servers: a worker that is lost does not end the job.

It is restarted up to --max_restart times. After that, asynchronous and geo training continues
without it; synchronous training waits for it up to --worker_wait seconds, because a replacement may
be started elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetx.launch.console import log
from fleetx.launch.forking import WarmParent
from fleetx.launch.group import Group, ProcessSpec, Worker


class ElasticServerGroup(Group):
    """The servers and workers of an elastic job on this machine."""

    def __init__(
        self, specs: Sequence[ProcessSpec], host: str, parent: WarmParent | None = None
    ) -> None:
        self._given_up: set[Path] = set()
        super().__init__(specs, host, parent)

    def poll(self) -> None:
        """Check which processes have ended; restart workers, or continue without them."""
        super().poll()
        for worker in self.workers:
            if worker.failed and worker.spec.role != "server" and not self._comes_back(worker):
                self._give_up(worker)

    def _give_up(self, worker: Worker) -> None:
        log_file = worker.spec.log
        if log_file in self._given_up or not self._others(worker):
            return
        self._given_up.add(log_file)
        log.warning(
            "%s has no restarts left (--max_restart %d): training continues without it.",
            worker.spec.name.capitalize(),
            worker.spec.restarts,
        )

    def _others(self, worker: Worker) -> bool:
        """Return whether another worker of this machine trains or has finished."""
        return any(
            other is not worker and not other.failed and other.spec.role != "server"
            for other in self.workers
        )

    def _is_failure(self, worker: Worker) -> bool:
        if worker.spec.role != "server" and self._others(worker):
            return False
        return super()._is_failure(worker)

    @property
    def completed(self) -> bool:
        """Whether a worker has succeeded, and all others have or were given up."""
        workers = [w for w in self.workers if w.spec.role != "server"]
        codes = [w.process.returncode for w in workers if w.spec.log not in self._given_up]
        return all(code == 0 for code in codes)
