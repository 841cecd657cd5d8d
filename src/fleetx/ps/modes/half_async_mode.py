"""Half-asynchronous training: the threads of one worker keep step, workers do not.

`threads` training threads share the mode. At the end of a step they wait for each other, their
gradients are added up (as Paddle does), sent and applied, and the parameters fetched; other workers
do the same at their own pace.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fleetx.ps.client.client import Pending
from fleetx.ps.modes.async_mode import send_batch
from fleetx.ps.modes.mode import Batch, Mode


class HalfAsyncMode(Mode):
    """One push per step of all threads of this worker."""

    def __init__(self, *arguments: Any, threads: int = 1, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if threads < 1:
            raise ValueError(f"Half-asynchronous training with {threads} threads cannot be.")
        self._lock = threading.Lock()
        self._batches: dict[int, Batch] = {}
        self._error: Exception | None = None
        self._barrier = threading.Barrier(threads, action=self._exchange)

    def _first_step(self) -> int:
        self.pull_dense()
        return 0

    def pull_dense(self) -> None:
        """Fetch the parameters; `step_end` has done so already."""
        for pending in [
            self.client.start_pull_dense(table, views) for table, views in self._views.items()
        ]:
            pending.wait()

    def start_pull_sparse(self, table: str, ids: Tensor) -> Pending[Tensor]:
        """Begin to fetch rows as they are now."""
        return self.client.start_pull_sparse(table, ids)

    def _own(self) -> Batch:
        with self._lock:
            return self._batches.setdefault(threading.get_ident(), Batch())

    def push_dense(self, gradients: Mapping[str, Tensor], *, rate: float | None = None) -> None:
        """Keep copies of this thread's gradients for the end of the step."""
        for table in self._dense:
            blocks = self._blocks(table, gradients)
            if blocks:
                self._own().add_dense(table, blocks, rate)

    def push_sparse(
        self, table: str, ids: Tensor, gradients: Tensor, *, rate: float | None = None
    ) -> None:
        """Keep copies of this thread's gradients of rows for the end of the step."""
        self._own().add_sparse(table, ids, gradients, rate)

    def step_end(self) -> None:
        """Wait for the other threads, and for the servers."""
        self._barrier.wait()
        if self._error is not None:
            raise self._error

    def _exchange(self) -> None:
        # Runs in one thread while the others wait.
        batch = Batch()
        # In the order in which threads came first, not in that of this step: the sum's bits depend
        # on it.
        for other in self._batches.values():
            batch.add(other)
        for own in self._batches:
            self._batches[own] = Batch()
        try:
            for pending in send_batch(self, batch):
                pending.wait()
            self.pull_dense()
        except Exception as error:  # raised again in every thread
            self._error = error
        self.step += 1
