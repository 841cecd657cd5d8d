"""Geo training: workers train locally and exchange deltas every `k_steps` steps.

The optimizer runs on the worker. After k steps, delta = (local - old) / workers is sent to the
servers, which add it, and old += delta; then, with the servers' value P, local += P - old and
old = P. Of sparse tables only rows that this worker has touched are sent, and only rows that others
have changed are received; a row that is new to this worker is fetched on first use.

Training continues during an exchange: its result is added at the end of the first step after it
has arrived, at the latest before the next exchange.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor

from fleetx.kernels.index import IdIndex, merge_rows, unique_ids
from fleetx.ps.client.client import Pending
from fleetx.ps.modes.mode import Blocks, Mode
from fleetx.ps.tables.table_spec import SparseTableSpec
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import Kind


class GeoMode(Mode):
    """Local training with an exchange of deltas."""

    can_pull_ahead = True

    def __init__(self, *arguments: Any, k_steps: int = 100, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if k_steps < 1:
            raise ValueError(
                f"k_steps={k_steps}: geo training needs at least 1 step between exchanges."
            )
        self._k_steps = k_steps
        self._old: dict[str, Blocks] = {}
        self._learning: list[Callable[[], None]] = []
        """Prefetches for the next step, each completed before any other result is merged."""
        self._exchange: Future[_News] | None = None
        self._rows = {name: _LocalRows(spec) for name, spec in self._sparse.items()}

    def _first_step(self) -> int:
        self._fetch()
        for table, views in self._views.items():
            self._old[table] = {name: view.clone() for name, view in views.items()}
        return 0

    def pull_dense(self) -> None:
        """Do nothing: parameters are local between exchanges."""

    def start_pull_sparse(self, table: str, ids: Tensor) -> Pending[Tensor]:
        """Start to look up this worker's rows; unknown ones are fetched first."""
        return self._look_up(table, ids, self._start_learning(table, ids))

    def start_pull_ahead(self, table: str, ids: Tensor) -> Pending[Tensor]:
        """Start to fetch rows of the next step that this worker does not have."""
        learn = self._start_learning(table, ids)
        self._learning.append(learn)

        def learn_once() -> None:
            if learn in self._learning:
                self._learning.remove(learn)
                learn()

        return self._look_up(table, ids, learn_once)

    def _look_up(self, table: str, ids: Tensor, learn: Callable[[], None]) -> Pending[Tensor]:
        def finish(_: list[Message]) -> Tensor:
            learn()
            rows = self._rows[table].read(ids.detach().reshape(-1))
            return rows.reshape(*ids.shape, rows.shape[1])

        return Pending([], finish)

    def _start_learning(self, table: str, ids: Tensor) -> Callable[[], None]:
        """Start to fetch rows that this worker does not have; the result waits for them."""
        local = self._rows[table]
        missing = local.unknown(ids.detach().reshape(-1))
        if not len(missing):
            return lambda: None
        fetched = self.client.start_pull_sparse(table, missing)
        return lambda: local.learn(missing, fetched.wait())

    def push_dense(self, gradients: Mapping[str, Tensor], *, rate: float | None = None) -> None:
        """Do nothing: the worker's optimizer updates the parameters."""

    def push_sparse(
        self, table: str, ids: Tensor, gradients: Tensor, *, rate: float | None = None
    ) -> None:
        """Update this worker's rows with SGD."""
        flat = ids.detach().reshape(-1)
        self._start_learning(table, flat)()
        rate = self._sparse[table].optimizer.rate if rate is None else rate
        rows = gradients.detach().reshape(len(flat), gradients.shape[-1])
        self._rows[table].update(flat, rows, rate)

    def step_end(self) -> None:
        """Start an exchange of deltas if it is due; merge the result of a completed one."""
        self.step += 1
        if self.step % self._k_steps == 0:
            self._start_exchange()
        elif self._exchange is not None and self._exchange.done():
            self.settle()
        self._at_boundary()

    def _start_exchange(self) -> None:
        self.settle()
        workers = self.client.workers
        dense: dict[str, Blocks] = {}
        for table, views in self._views.items():
            old = self._old[table]
            dense[table] = {name: (view - old[name]) / workers for name, view in views.items()}
            for name, delta in dense[table].items():
                old[name] += delta
        rows = {table: local.take_deltas(workers) for table, local in self._rows.items()}
        found: Future[_News] = Future()

        def talk() -> None:
            try:
                found.set_result(self._talk(dense, rows))
            except BaseException as error:  # re-raised by settle
                found.set_exception(error)

        self._exchange = found
        threading.Thread(target=talk, name="geo exchange", daemon=True).start()

    def _talk(self, dense: dict[str, Blocks], rows: dict[str, tuple[Tensor, Tensor]]) -> _News:
        """Send deltas and return the servers' new values; runs in the background."""
        client = self.client
        sent = [client.start_dense(Kind.ADD, table, deltas) for table, deltas in dense.items()]
        for table, (ids, deltas) in rows.items():
            if len(ids):
                sent.append(client.start_sparse(Kind.ADD, table, ids, deltas))
        for pending in sent:
            pending.wait()
        values = {
            table: {name: torch.empty_like(delta) for name, delta in deltas.items()}
            for table, deltas in dense.items()
        }
        for pending in [client.start_pull_dense(table, out) for table, out in values.items()]:
            pending.wait()
        return _News(values, {table: client.changed(table) for table in rows})

    def settle(self) -> None:
        """Wait for an exchange in progress, if any, and merge its result."""
        if self._exchange is None:
            return
        news, self._exchange = self._exchange.result(), None
        # A row that was requested before the servers reported their changes, and was unknown here
        # when they did, would miss those changes.
        self._learn()
        for table, values in news.dense.items():
            for name, view in self._views[table].items():
                view += values[name] - self._old[table][name]
            self._old[table] = values
        for table, changes in news.rows.items():
            self._rows[table].merge(*changes)

    def _learn(self) -> None:
        """Wait for the rows that are being fetched for the next step."""
        for learn in self._learning:
            learn()
        self._learning.clear()

    def stop_for_move(self) -> None:
        """Wait for an exchange in progress and for rows that are being fetched."""
        self.settle()
        self._learn()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save all tables, with all deltas that this worker has sent; called by one worker."""
        self.settle()
        super().save(path)

    def load(self, path: str | os.PathLike[str], *, asks_servers: bool) -> None:
        """Raise an error: values that servers load do not reach the local values of workers."""
        raise RuntimeError(
            "geo training cannot load during training, since every worker has local values: "
            f"start the job again with fleet.init_server({os.path.dirname(path)!r}) in its servers."
        )

    def stop(self) -> None:
        """Send the remaining deltas and disconnect."""
        if self.step % self._k_steps:
            self._start_exchange()
        self.settle()
        self.client.finish()


@dataclasses.dataclass(frozen=True)
class _News:
    """The servers' values after an exchange."""

    dense: dict[str, Blocks]
    rows: dict[str, tuple[Tensor, Tensor]]


class _LocalRows:
    """A worker's copy of the rows it uses, and the last known values of the servers."""

    def __init__(self, spec: SparseTableSpec) -> None:
        self._index = IdIndex()
        self._local = torch.empty(0, spec.dim, dtype=getattr(torch, spec.dtype))
        self._old = torch.empty_like(self._local)
        self._touched: list[Tensor] = []

    def unknown(self, ids: Tensor) -> Tensor:
        """Return the unique ids that have no local row."""
        missing = self._index.lookup(ids) < 0
        return unique_ids(ids[missing])[0] if bool(missing.any()) else ids[:0]

    def learn(self, ids: Tensor, rows: Tensor) -> None:
        """Store rows of the servers, except those that are known and trained here by now."""
        new = self._index.lookup(ids) < 0
        if not bool(new.all()):
            ids, rows = ids[new], rows[new]
        places, _ = self._index.insert(ids)
        if self._index.row_limit > len(self._local):
            more = max(self._index.row_limit, 2 * len(self._local)) - len(self._local)
            room = self._local.new_empty(more, self._local.shape[1])
            self._local, self._old = torch.cat([self._local, room]), torch.cat([self._old, room])
        self._local[places] = rows
        self._old[places] = rows

    def read(self, ids: Tensor) -> Tensor:
        """Return rows."""
        return self._local.index_select(0, self._index.lookup(ids))

    def update(self, ids: Tensor, gradients: Tensor, rate: float) -> None:
        """Apply one step of SGD."""
        found, sums, _ = merge_rows(ids, gradients)
        self._local.index_add_(0, self._index.lookup(found), sums, alpha=-rate)
        self._touched.append(found.clone())

    def take_deltas(self, workers: int) -> tuple[Tensor, Tensor]:
        """Return the deltas of all rows touched since the last call."""
        if not self._touched:
            return torch.empty(0, dtype=torch.int64), self._local[:0]
        ids, _ = unique_ids(torch.cat(self._touched))
        self._touched.clear()
        places = self._index.lookup(ids)
        deltas = self._local.index_select(0, places).sub_(self._old.index_select(0, places))
        deltas.div_(workers)
        self._old.index_add_(0, places, deltas)
        return ids, deltas

    def merge(self, ids: Tensor, values: Tensor) -> None:
        """Merge the changes of other workers to rows that are used here."""
        places = self._index.lookup(ids)
        known = places >= 0
        if not bool(known.all()):
            places, values = places[known], values[known]
        self._local.index_add_(0, places, values - self._old.index_select(0, places))
        self._old.index_copy_(0, places, values)
