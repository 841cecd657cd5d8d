"""Asynchronous training: gradients are queued and sent in the background, applied as they arrive.

The queue holds at most `send_queue_size` steps, and a step that does not fit waits: memory stays
bounded. The sender merges up to `max_merge_var_num` steps into one push, as the sum (right for SGD)
or the mean. `max_staleness` bounds how far parameters may lag: a pull in step s waits until the
pushes of all living workers up to step s - 1 - max_staleness have been applied; with 0 and one
worker this is plain training.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fleetx.ps.client import Pending
from fleetx.ps.mode import Batch, Blocks, Mode
from fleetx.ps.wire import Flag, Kind


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsyncSettings:
    """How gradients are queued and merged; the names are Paddle's."""

    max_merge_var_num: int = 1
    """At most so many steps become one push."""
    send_queue_size: int = 16
    """At most so many steps wait to be sent."""
    send_wait_times: int = 1
    """How many times 10 ms the sender waits for more to merge."""
    independent_recv_thread: bool = False
    """Parameters are fetched in the background, and `pull_dense` takes the newest there are …"""
    min_send_grad_num_before_recv: int = 1
    """… after more than so many pushes."""
    merge: str = "sum"
    """"sum" or "mean" of merged steps."""
    max_staleness: int | None = None
    """None: parameters may be arbitrarily old."""

    def __post_init__(self) -> None:
        for name in ("max_merge_var_num", "send_queue_size", "send_wait_times"):
            if getattr(self, name) < 1:
                raise ValueError(f"AsyncSettings.{name} must be at least 1.")
        if self.merge not in ("sum", "mean"):
            raise ValueError(f"AsyncSettings.merge={self.merge!r}: use 'sum' or 'mean'.")
        if self.max_staleness is not None and self.max_staleness < 0:
            raise ValueError("AsyncSettings.max_staleness must not be negative.")


class AsyncMode(Mode):
    """No step waits for another worker (unless `max_staleness` says so)."""

    def __init__(
        self, *arguments: Any, settings: AsyncSettings | None = None, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._settings = settings or AsyncSettings()
        self._queue: queue.Queue[tuple[int, Batch] | None] = queue.Queue(
            self._settings.send_queue_size
        )
        self._batch = Batch()
        self._error: BaseException | None = None
        self._fetched = _Fetched()
        self._sender = threading.Thread(target=self._send_all, name="sender", daemon=True)

    def _first_step(self) -> int:
        for table, views in self._views.items():
            self.client.start_pull_dense(table, views).wait()
        self._sender.start()
        # A worker that was started again goes on where the others have seen it last.
        return 1 + max(welcome["clock"] for welcome in self.client.welcomes())

    def _freshness(self) -> dict[str, Any]:
        if self._settings.max_staleness is None:
            return {}
        return {"step": self.step - 1 - self._settings.max_staleness, "flags": Flag.CLOCKED}

    def pull_dense(self) -> None:
        """Fetch the parameters as they are now, or take what was fetched in the background."""
        self._check()
        if self._settings.independent_recv_thread and self._settings.max_staleness is None:
            self._fetched.copy_to(self._views)
            return
        for pending in [
            self.client.start_pull_dense(table, views, **self._freshness())
            for table, views in self._views.items()
        ]:
            pending.wait()

    def start_pull_sparse(self, table: str, ids: Tensor) -> Pending[Tensor]:
        """Begin to fetch rows as they are now."""
        self._check()
        return self.client.start_pull_sparse(table, ids, **self._freshness())

    def push_dense(self, gradients: Mapping[str, Tensor], *, rate: float | None = None) -> None:
        """Keep copies of gradients for the end of the step."""
        for table in self._dense:
            blocks = self._blocks(table, gradients)
            if blocks:
                self._batch.add_dense(table, blocks, rate)

    def push_sparse(
        self, table: str, ids: Tensor, gradients: Tensor, *, rate: float | None = None
    ) -> None:
        """Keep copies of gradients of rows for the end of the step."""
        self._batch.add_sparse(table, ids, gradients, rate)

    def step_end(self) -> None:
        """Queue the step's gradients; waits only while the queue is full."""
        batch, self._batch = self._batch, Batch()
        self._enqueue((self.step, batch))
        self.step += 1

    def _enqueue(self, item: tuple[int, Batch] | None) -> None:
        while True:
            self._check()
            try:
                self._queue.put(item, timeout=0.5)
                return
            except queue.Full:
                continue

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    # -- the sender -------------------------------------------------------------------------------
    def _send_all(self) -> None:
        try:
            sent = 0
            while (found := self._take()) is not None:
                step, batch = found
                self._send(batch, step)
                sent += 1
                if (
                    self._settings.independent_recv_thread
                    and sent > self._settings.min_send_grad_num_before_recv
                ):
                    self._fetched.fetch(self)
                    sent = 0
        except Exception as error:  # raised again by the next call of the training loop
            self._error = error

    def _take(self) -> tuple[int, Batch] | None:
        """Return the last step number and the merged gradients of some steps."""
        item = self._queue.get()
        if item is None:
            return None
        step, batch = item
        while batch.steps < self._settings.max_merge_var_num:
            try:
                item = self._queue.get(timeout=0.01 * self._settings.send_wait_times)
            except queue.Empty:
                break
            if item is None:
                self._queue.put(None)
                break
            step, more = item
            batch.add(more)
        if self._settings.merge == "mean":
            batch.average()
        return step, batch

    def _send(self, batch: Batch, step: int) -> None:
        for pending in send_batch(self, batch):
            pending.wait()
        if self._settings.max_staleness is not None:
            for future in self.client.tell_clock(step):
                future.result()

    def stop(self) -> None:
        """Send what is queued and say farewell."""
        self._enqueue(None)
        self._sender.join()
        self._check()
        self.client.finish()


def send_batch(mode: Mode, batch: Batch) -> list[Pending[None]]:
    """Begin to send gradients that are applied as they arrive."""
    client, norm = mode.client, mode.norm_of(batch)
    sent = [
        client.start_dense(Kind.PUSH, table, blocks, rate=batch.rates[table], norm=norm)
        for table, blocks in batch.dense.items()
    ]
    for table in batch.sparse:
        ids, rows = batch.rows(table)
        rate = batch.rates[table]
        sent.append(client.start_sparse(Kind.PUSH, table, ids, rows, rate=rate, norm=norm))
    return sent


class _Fetched:
    """Parameters that were fetched in the background."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: dict[str, Blocks] | None = None

    def fetch(self, mode: Mode) -> None:
        """Fetch all dense tables."""
        found = {
            table: {name: torch.empty_like(view) for name, view in views.items()}
            for table, views in mode._views.items()
        }
        for pending in [
            mode.client.start_pull_dense(table, blocks) for table, blocks in found.items()
        ]:
            pending.wait()
        with self._lock:
            self._ready = found

    def copy_to(self, views: dict[str, Blocks]) -> None:
        """Write the newest values, if there are new ones."""
        with self._lock:
            ready, self._ready = self._ready, None
        for table, blocks in (ready or {}).items():
            for name, value in blocks.items():
                views[table][name].copy_(value)
