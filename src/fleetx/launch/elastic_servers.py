"""`fleetrun --elastic` with parameter servers: a worker that is lost does not end the job.

It is restarted up to --max_restart times. After that, asynchronous and geo training continues
without it; synchronous training waits for it up to --worker_wait seconds, because a replacement may
be started elsewhere.
"""

from __future__ import annotations

from fleetx.launch.group import Group, Worker


class ElasticServerGroup(Group):
    """The servers and workers of an elastic job on this machine."""

    def poll(self) -> None:
        """Check which processes have ended; restart workers, or continue without them."""
        super().poll()
        for worker in self.workers:
            is_over = worker.failed and not self._comes_back(worker)
            if is_over and worker.spec.role != "server" and self._others(worker):
                self._continue_without(worker)

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
