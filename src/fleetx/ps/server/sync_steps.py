"""The server side of synchronous training: one update per step, with the mean over workers.

Gradients are kept until every worker has committed its step, and only then summed, in the order of
the workers' ranks, and divided. So neither the order of arrival nor a restart in between can change
a bit: a worker commits only after all servers have its gradients, and no server advances before
that, so a restarted worker finds all parameters unchanged and can repeat its step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from fleetx.kernels.index import unique_ids
from fleetx.ps.server import table_requests
from fleetx.ps.tables.make_table import Table
from fleetx.ps.wire.assembly import Message, Tensors


@dataclasses.dataclass
class _Gradients:
    """A worker's gradients of the step per table; a second push of the same replaces the first."""

    dense: dict[int, dict[int, Tensor]] = dataclasses.field(default_factory=dict)
    sparse: dict[int, Tensors] = dataclasses.field(default_factory=dict)
    rates: dict[int, float | None] = dataclasses.field(default_factory=dict)


class SyncSteps:
    """Gradients of the current step."""

    def __init__(self) -> None:
        self.version = 0
        """The number of applied steps."""
        self._gradients: dict[int, _Gradients] = {}
        self._committed: set[int] = set()
        self._means: dict[int, Tensors] | None = None
        self._squares: float | None = None
        self._norm: float | None = None
        self.last_squares = 0.0
        """This server's part of the squared norm of the last step's gradients."""

    @property
    def is_between_steps(self) -> bool:
        """Whether no part of the current step has arrived yet."""
        return not self._gradients and not self._committed

    def add(self, message: Message, table: Table) -> None:
        """Store a gradient; one of a step that has been applied is a repetition."""
        header = message.header
        if header.step < self.version:
            return
        kept = self._gradients.setdefault(header.worker, _Gradients())
        kept.rates[header.table] = table_requests.known(header.rate)
        if hasattr(table.spec, "dim"):
            kept.sparse[header.table] = message.tensors
        else:
            kept.dense.setdefault(header.table, {}).update(message.tensors)

    def commit(self, worker: int, step: int) -> None:
        """Record that all servers have a worker's gradients of this step."""
        if step >= self.version:
            self._committed.add(worker)

    def has_committed(self, worker: int) -> bool:
        """Return whether a worker has committed the current step."""
        return worker in self._committed

    def waits_for(self, active: set[int]) -> set[int]:
        """Return the workers that the step waits for."""
        return active - self._committed

    def advance(self, active: set[int], tables: Sequence[Table], *, alone: bool) -> bool:
        """Update the tables if all active workers have committed; return whether they were updated.

        If gradients are clipped by their global norm, a server that is not `alone` first waits for
        that norm.
        """
        if not self._committed or not active <= self._committed:
            return False
        workers = sorted(self._committed)
        if self._means is None:
            means = {number: self._mean(number, workers) for number in range(len(tables))}
            self._means = {number: tensors for number, tensors in means.items() if tensors}
            self._squares = self._sum_of_squares(tables)
        if self._squares is not None and self._norm is None:
            if not alone:
                return False
            self._norm = math.sqrt(self._squares)
        for number, tensors in self._means.items():
            table = tables[number]
            clips = table_requests.clips_by_global_norm(table.spec)
            table_requests.push(
                table, tensors, rate=self._rate(number, workers), norm=self._norm if clips else None
            )
        self.last_squares = self._squares or 0.0
        self._gradients.clear()
        self._committed.clear()
        self._means = self._squares = self._norm = None
        self.version += 1
        return True

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return a copy of what has arrived of the current step: (tensors, JSON-serializable rest).

        Means and squares are not part of it: `advance` computes them again.
        """
        tensors: dict[str, Tensor] = {}
        rates: dict[str, dict[str, float | None]] = {}
        for worker, kept in self._gradients.items():
            rates[str(worker)] = {str(table): rate for table, rate in kept.rates.items()}
            for table, blocks in kept.dense.items():
                for key, tensor in blocks.items():
                    tensors[f"dense.{worker}.{table}.{key}"] = tensor.clone()
            for table, parts in kept.sparse.items():
                for key, (_, tensor) in enumerate(parts):
                    tensors[f"sparse.{worker}.{table}.{key}"] = tensor.clone()
        return tensors, {"rates": rates, "committed": sorted(self._committed), "norm": self._norm}

    def load_state_dict(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._gradients.clear()
        for worker, rates in meta["rates"].items():
            self._gradients[int(worker)] = _Gradients(
                rates={int(table): rate for table, rate in rates.items()}
            )
        for name in sorted(tensors, key=_place):
            kind, worker, table, key = _place(name)
            kept = self._gradients[worker]
            if kind == "dense":
                kept.dense.setdefault(table, {})[key] = tensors[name]
            else:
                kept.sparse.setdefault(table, []).append((key, tensors[name]))
        self._committed = set(meta["committed"])
        self._norm = meta["norm"]

    def _sum_of_squares(self, tables: Sequence[Table]) -> float | None:
        assert self._means is not None
        if not any(table_requests.clips_by_global_norm(table.spec) for table in tables):
            return None
        return sum(
            table_requests.square_norm(tables[number], tensors)
            for number, tensors in self._means.items()
            if table_requests.clips_by_global_norm(tables[number].spec)
        )

    def squares(self, step: int) -> float | None:
        """Return this server's part of a step's squared norm; None if not known yet."""
        if step == self.version:
            return self._squares
        # A worker may ask about the last step after another worker's reply has completed it.
        return self.last_squares if step == self.version - 1 else 0.0

    def set_norm(self, step: int, norm: float) -> None:
        """Set the norm of all gradients of the current step."""
        if step == self.version and self._squares is not None:
            self._norm = norm

    def _rate(self, table: int, workers: list[int]) -> float | None:
        rates = [
            self._gradients[worker].rates[table]
            for worker in workers
            if worker in self._gradients and table in self._gradients[worker].rates
        ]
        return rates[0] if rates else None

    def _of(self, workers: list[int]) -> Iterator[_Gradients]:
        return (self._gradients[worker] for worker in workers if worker in self._gradients)

    def _mean(self, table: int, workers: list[int]) -> Tensors:
        sparse = [kept.sparse[table] for kept in self._of(workers) if table in kept.sparse]
        if sparse:
            return _mean_of_rows(sparse, len(workers))
        dense = [kept.dense[table] for kept in self._of(workers) if table in kept.dense]
        keys = sorted({key for blocks in dense for key in blocks})
        return [
            (key, _mean([blocks[key] for blocks in dense if key in blocks], len(workers)))
            for key in keys
        ]


def _place(name: str) -> tuple[str, int, int, int]:
    kind, *numbers = name.split(".")
    worker, table, key = map(int, numbers)
    return kind, worker, table, key


def _mean(gradients: list[Tensor], workers: int) -> Tensor:
    if workers == 1:
        return gradients[0]
    if len(gradients) == 1:
        return gradients[0] / workers
    total = gradients[0] + gradients[1]
    for gradient in gradients[2:]:
        total += gradient
    return total.div_(workers)


def _mean_of_rows(pushes: list[Tensors], workers: int) -> Tensors:
    if workers == 1:
        return pushes[0]
    ids = torch.cat([push[0][1] for push in pushes])
    rows = torch.cat([push[1][1] for push in pushes])
    counts = torch.cat(
        [push[2][1] if len(push) > 2 else torch.ones_like(push[0][1]) for push in pushes]
    )
    found, inverse = unique_ids(ids)
    sums = rows.new_zeros(len(found), rows.shape[1]).index_add_(0, inverse, rows)
    times = counts.new_zeros(len(found)).index_add_(0, inverse, counts)
    return [(0, found), (1, sums.div_(workers)), (2, times)]
