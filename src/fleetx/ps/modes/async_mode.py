"""Asynchronous training: gradients are queued and sent in the background, applied as they arrive.

Parameters arrive with the reply to a push: a step uses the newest ones and waits for none. The
queue holds at most `send_queue_size` steps, and a step that does not fit waits, so memory is
bounded. The sender merges up to `max_merge_var_num` steps into one push, as the sum (correct for
SGD) or the mean. `max_staleness` bounds the staleness of parameters: a pull in step s waits until
the pushes of all living workers up to step s - 1 - max_staleness have been applied; with 0 and one
worker this is ordinary training.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fleetx import torch_private
from fleetx.ps.client.client import Pending
from fleetx.ps.modes.mode import Batch, Blocks, Mode
from fleetx.ps.wire.messages import Flag, Kind


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsyncSettings:
    """The settings of queueing and merging; the names are Paddle's."""

    max_merge_var_num: int = 1
    """The maximum number of steps in one push."""
    send_queue_size: int = 16
    """The maximum number of steps waiting to be sent."""
    send_wait_times: int = 1
    """How long the sender waits for more steps to merge, in units of 10 ms."""
    independent_recv_thread: bool = False
    """Fetch parameters only …"""
    min_send_grad_num_before_recv: int = 1
    """… after more than this many pushes, not with each."""
    merge: str = "sum"
    """"sum" or "mean" of merged steps."""
    max_staleness: int | None = None
    """The maximum staleness in steps; None for no bound."""

    def __post_init__(self) -> None:
        for name in ("max_merge_var_num", "send_queue_size", "send_wait_times"):
            if getattr(self, name) < 1:
                raise ValueError(f"AsyncSettings.{name} must be at least 1.")
        if self.merge not in ("sum", "mean"):
            raise ValueError(f"AsyncSettings.merge={self.merge!r}: use 'sum' or 'mean'.")
        if self.max_staleness is not None and self.max_staleness < 0:
            raise ValueError("AsyncSettings.max_staleness must not be negative.")


class AsyncMode(Mode):
    """Training in which no step waits for another worker, unless `max_staleness` is set."""

    can_pull_ahead = True

    def __init__(
        self, *arguments: Any, settings: AsyncSettings | None = None, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._settings = settings or AsyncSettings()
        self._queue: queue.Queue[tuple[int, Batch] | None] = queue.Queue(
            self._settings.send_queue_size
        )
        self._unsent = 0  # steps that are queued or on their way
        self._sent = threading.Condition()
        self._error: BaseException | None = None
        self._fetched = _Fetched()
        self._sender = threading.Thread(target=self._send_all, name="sender", daemon=True)

    def _first_step(self) -> int:
        self._fetch()
        self._sender.start()
        # A restarted worker continues after its last step that the servers know.
        return 1 + max(welcome["clock"] for welcome in self.client.welcomes())

    def _freshness(self, ahead: int = 0) -> dict[str, Any]:
        if self._settings.max_staleness is None:
            return {}
        step = self.step + ahead
        return {"step": step - 1 - self._settings.max_staleness, "flags": Flag.CLOCKED}

    def pull_dense(self) -> None:
        """Use the newest parameters that have arrived with replies to pushes.

        With `max_staleness` they are fetched now, and satisfy the bound.
        """
        self._check()
        if self._settings.max_staleness is None:
            self._fetched.copy_to(self._views)
        else:
            self._fetch(**self._freshness())

    def refresh_dense(self) -> None:
        """Fetch the current parameters."""
        self._check()
        self._fetch()

    def start_pull_sparse(self, table: str, ids: Tensor) -> Pending[Tensor]:
        """Start to fetch the current rows."""
        self._check()
        return self.client.start_pull_sparse(table, ids, **self._freshness())

    def start_pull_ahead(self, table: str, ids: Tensor) -> Pending[Tensor]:
        """Start to prefetch rows of the next step, with the staleness that it allows."""
        self._check()
        return self.client.start_pull_sparse(table, ids, **self._freshness(ahead=1))

    def step_end(self) -> None:
        """Queue the step's gradients; wait only while the queue is full."""
        batch, self._batch = self._batch, Batch()
        with self._sent:
            self._unsent += 1
        self._enqueue((self.step, batch))
        self.step += 1
        self._at_boundary()

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
            # With `independent_recv_thread`, parameters arrive after some pushes, not each.
            pause = (
                self._settings.min_send_grad_num_before_recv
                if self._settings.independent_recv_thread
                else 0
            )
            sent = 0
            while (found := self._take()) is not None:
                step, batch, steps = found
                sent += 1
                fetches = sent > pause and self._settings.max_staleness is None
                self._send(batch, step, fetches=fetches)
                sent = 0 if fetches else sent
                with self._sent:
                    self._unsent -= steps
                    self._sent.notify_all()
        except Exception as error:  # re-raised by the next call of the training loop
            with self._sent:
                self._error = error
                self._sent.notify_all()

    def settle(self) -> None:
        """Wait until all queued steps have been sent."""
        with self._sent:
            self._sent.wait_for(lambda: not self._unsent or self._error is not None)
        self._check()

    def _take(self) -> tuple[int, Batch, int] | None:
        """Return the last step number, the merged gradients of some steps, and their number."""
        item = self._queue.get()
        if item is None:
            return None
        (step, batch), steps = item, 1
        while batch.steps < self._settings.max_merge_var_num:
            try:
                item = self._queue.get(timeout=0.01 * self._settings.send_wait_times)
            except queue.Empty:
                break
            if item is None:
                self._queue.put(None)
                break
            step, more = item
            steps += 1
            batch.add(more)
        if self._settings.merge == "mean":
            batch.average()
        return step, batch, steps

    def _send(self, batch: Batch, step: int, *, fetches: bool) -> None:
        out = self._fetched.room(self._views) if fetches else None
        for pending in send_batch(self, batch, out):
            pending.wait()
        if out is not None:
            self._fetched.put(out)
        if self._settings.max_staleness is not None:
            for future in self.client.tell_clock(step):
                future.result()

    def stop(self) -> None:
        """Send queued steps and disconnect."""
        self._enqueue(None)
        self._sender.join()
        self._check()
        self.refresh_dense()
        self.client.finish()


def send_batch(
    mode: Mode, batch: Batch, out: Mapping[str, Blocks] | None = None
) -> list[Pending[None]]:
    """Start to send gradients that are applied as they arrive.

    The resulting parameters are written to the tensors of `out`, by table and block.
    """
    client, norm = mode.client, mode.norm_of(batch)
    out = out or {}
    sent = []
    for table, blocks in batch.dense.items():
        rate, into = batch.rates[table], out.get(table)
        sent.append(client.start_dense(Kind.PUSH, table, blocks, rate=rate, norm=norm, out=into))
    for table, wanted in out.items():
        rest = {n: value for n, value in wanted.items() if n not in batch.dense.get(table, {})}
        if rest:
            sent.append(client.start_pull_dense(table, rest))
    for table in batch.sparse:
        ids, rows = batch.rows(table)
        rate = batch.rates[table]
        sent.append(client.start_sparse(Kind.PUSH, table, ids, rows, rate=rate, norm=norm))
    return sent


class _Fetched:
    """Parameters received in the background, until the training loop uses them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: dict[str, Blocks] | None = None
        self._spare: dict[str, Blocks] | None = None

    def room(self, views: dict[str, Blocks]) -> dict[str, Blocks]:
        """Return tensors to fill."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None and spare.keys() == views.keys():
            return spare
        return {
            table: {name: torch.empty_like(view) for name, view in blocks.items()}
            for table, blocks in views.items()
        }

    def put(self, filled: dict[str, Blocks]) -> None:
        """Store filled tensors in place of older ones."""
        with self._lock:
            self._spare, self._ready = self._ready, filled

    def copy_to(self, views: dict[str, Blocks]) -> None:
        """Copy the newest values to `views`, if there are new ones."""
        with self._lock:
            ready, self._ready = self._ready, None
        if ready is None:
            return
        for table, blocks in ready.items():
            if table in views:
                names = list(blocks)
                torch_private.foreach_copy_(
                    [views[table][n] for n in names], [blocks[n] for n in names]
                )
        with self._lock:
            self._spare = self._spare or ready
