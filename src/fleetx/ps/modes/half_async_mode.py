"""Half-asynchronous training: the threads of a worker are synchronous, workers are not.

`threads` training threads share the mode. At the end of a step they wait for each other, their
gradients are summed (as in Paddle), sent and applied, and the parameters fetched; other workers do
the same independently.
"""

from __future__ import annotations

import threading
from typing import Any

from torch import Tensor

from fleetx.ps.client.client import Pending
from fleetx.ps.modes.async_mode import send_batch
from fleetx.ps.modes.mode import Batch, Mode


class HalfAsyncMode(Mode):
    """Training with one push per step of all threads of this worker."""

    def __init__(self, *arguments: Any, threads: int = 1, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if threads < 1:
            raise ValueError(f"Half-asynchronous training needs at least 1 thread, not {threads}.")
        self._lock = threading.Lock()
        self._batches: dict[int, Batch] = {}
        self._error: Exception | None = None
        self._barrier = threading.Barrier(threads, action=self._exchange)

    def _first_step(self) -> int:
        self.pull_dense()
        return 0

    def pull_dense(self) -> None:
        """Fetch the parameters, unless `step_end` has done so."""
        self._fetch()

    def start_pull_sparse(self, table: str, ids: Tensor) -> Pending[Tensor]:
        """Start to fetch the current rows."""
        return self.client.start_pull_sparse(table, ids)

    def _own_batch(self) -> Batch:
        with self._lock:
            return self._batches.setdefault(threading.get_ident(), Batch())

    def step_end(self) -> None:
        """Wait for the other threads, and for the servers."""
        self._barrier.wait()
        if self._error is not None:
            raise self._error

    def _exchange(self) -> None:
        # Runs in one thread while the others wait.
        batch = Batch()
        # In the order of the threads' first steps, not of this step: the bits of the sum depend on
        # it.
        for other in self._batches.values():
            batch.add(other)
        for own in self._batches:
            self._batches[own] = Batch()
        try:
            for pending in send_batch(self, batch):
                pending.wait()
            self.pull_dense()
            self.step += 1
            self._at_boundary()
        except Exception as error:  # re-raised in every thread
            self._error = error
