"""The common interface of all modes of training with servers, for modules and programs.

A mode connects a training loop to the client. In each step the loop calls `pull_dense()`,
`pull_sparse(table, ids)` as often as needed, `push_dense(gradients)`, `push_sparse(table, ids,
gradients)` and `step_end()`; before the first step `start(parameters)`, which returns the number of
the first step, and after the last one `stop()`. During a step it may prefetch rows of the next one.
The modes differ in when they send and when they wait.
"""

from __future__ import annotations

import abc
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from fleetx.kernels.gradients import square_norm
from fleetx.kernels.index import merge_rows
from fleetx.ps.client.client import Client, Pending
from fleetx.ps.modes.relocation import Relocation
from fleetx.ps.server.table_requests import clips_by_global_norm
from fleetx.ps.tables.table_spec import DenseTableSpec, SparseTableSpec

Blocks = dict[str, Tensor]


class Mode(abc.ABC):
    """A mode of training with parameter servers."""

    keeps_step: ClassVar[bool] = False
    """All workers make the same steps."""
    can_pull_ahead: bool = False
    """Rows of the next step may be prefetched during this step."""

    def __init__(
        self,
        client: Client,
        dense: Sequence[Sequence[DenseTableSpec]] = (),
        sparse: Sequence[SparseTableSpec] = (),
    ) -> None:
        """Create a mode; `dense` lists the dense tables, each as one specification per server."""
        self.client = client
        self.step = 0
        """The current step."""
        self.loads = 0
        """The number of times that other values have been loaded."""
        self._dense = {specs[0].name: list(specs) for specs in dense}
        self._sparse = {spec.name: spec for spec in sparse}
        self._parameters: dict[str, Tensor] = {}
        self._views: dict[str, Blocks] = {}
        self._batch = Batch()
        """The gradients of the current step, in modes that send them at its end."""
        self._relocation = Relocation(self, client.layout) if client.layout is not None else None

    def start(self, parameters: Mapping[str, Tensor]) -> int:
        """Create the tables, agree on the initial values (worker 0's), and return the first step.

        `parameters` are this worker's tensors by name; pulls write to them.
        """
        self.bind(parameters)
        for specs in self._dense.values():
            self.client.create(specs)
        for spec in self._sparse.values():
            self.client.create(spec)
        for table, views in self._views.items():
            if self.client.worker == 0:
                self.client.set_dense(table, views)
            self.client.wait_for_values(table)
        self.step = self._first_step()
        self._at_boundary()
        return self.step

    def bind(self, parameters: Mapping[str, Tensor]) -> None:
        """Make pulls write to these tensors from now on."""
        self._parameters = {name: value.detach() for name, value in parameters.items()}
        for table in self._dense:
            self._views[table] = self._blocks(table, self._parameters)

    def leave_out(self, table: str) -> None:
        """Stop fetching and sending a dense table, because it does not change."""
        del self._dense[table], self._views[table]

    def _blocks(self, table: str, values: Mapping[str, Tensor]) -> Blocks:
        """Return the blocks of a table as views of the given whole tensors."""
        found = {}
        for spec in self._dense[table]:
            dtype = getattr(torch, spec.dtype)
            for block in spec.blocks:
                if block.parameter in values:
                    found[block.name] = block.of(values[block.parameter].to(dtype))
        return found

    def _gradients(self, gradients: Mapping[str, Tensor]) -> Iterator[tuple[str, Blocks]]:
        """Iterate over the dense tables with gradients, and their blocks."""
        found = ((table, self._blocks(table, gradients)) for table in self._dense)
        return ((table, blocks) for table, blocks in found if blocks)

    def _fetch(self, **when: Any) -> None:
        """Fetch all parameters; `when` says which values: those of a step, or fresh enough ones."""
        for pending in [
            self.client.start_pull_dense(table, views, **when)
            for table, views in self._views.items()
        ]:
            pending.wait()

    def norm_of(self, batch: Batch) -> float | None:
        """Return the norm of this worker's gradients, if tables clip by it."""
        total, clips = 0.0, False
        for table, values in batch.dense.items():
            spec = self._dense[table][0]
            if clips_by_global_norm(spec):
                clips = True
                clipped = {b.name for each in self._dense[table] for b in each.blocks if b.clipped}
                total += square_norm([v for name, v in values.items() if name in clipped])
        for table in batch.sparse:
            if clips_by_global_norm(self._sparse[table]):
                clips = True
                total += square_norm([merge_rows(*batch.rows(table))[1]])
        return math.sqrt(total) if clips else None

    @abc.abstractmethod
    def _first_step(self) -> int:
        """Return the first step, which is not 0 for a restarted worker."""

    @abc.abstractmethod
    def pull_dense(self) -> None:
        """Update the parameters from the servers."""

    def refresh_dense(self) -> None:
        """Fetch the current parameters, in modes whose steps do not wait for them."""
        self.pull_dense()

    @abc.abstractmethod
    def start_pull_sparse(self, table: str, ids: Tensor) -> Pending[Tensor]:
        """Start to fetch rows of a table: ids.shape + (dim,)."""

    def start_pull_ahead(self, table: str, ids: Tensor) -> Pending[Tensor]:
        """Start to prefetch rows for the next step, if `can_pull_ahead`."""
        raise NotImplementedError(f"{type(self).__name__} cannot prefetch rows.")

    def pull_sparse(self, table: str, ids: Tensor) -> Tensor:
        """Return rows of a table: ids.shape + (dim,)."""
        return self.start_pull_sparse(table, ids).wait()

    def push_dense(self, gradients: Mapping[str, Tensor], *, rate: float | None = None) -> None:
        """Push gradients by parameter: by default, copy them for the end of the step."""
        for table, blocks in self._gradients(gradients):
            self._own_batch().add_dense(table, blocks, rate)

    def push_sparse(
        self, table: str, ids: Tensor, gradients: Tensor, *, rate: float | None = None
    ) -> None:
        """Push gradients of rows: by default, copy them for the end of the step."""
        self._own_batch().add_sparse(table, ids, gradients, rate)

    def _own_batch(self) -> Batch:
        """Return where the calling thread collects gradients."""
        return self._batch

    def stop_for_move(self) -> None:
        """Wait until the servers have applied everything that this worker has sent."""
        self.settle()

    def _at_boundary(self) -> None:
        """Let tables move to other servers, if that is due; called at the end of every step."""
        if self._relocation is not None:
            self._relocation.at_boundary()

    def settle(self) -> None:  # noqa: B027 - most modes have nothing in progress
        """Wait for an exchange that `step_end` has started, in modes that train during it."""

    @abc.abstractmethod
    def step_end(self) -> None:
        """End the step."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save all tables as they are before this step; called by one worker."""
        self.client.save(path)

    def load(self, path: str | os.PathLike[str], *, asks_servers: bool) -> None:
        """Continue with saved tables, between two steps; one worker makes the servers load them."""
        self.settle()
        if asks_servers:
            self.client.load(path)
        self.loads += 1
        self.refresh_dense()

    def stop(self) -> None:
        """Send the remaining gradients and disconnect."""
        self.client.finish()


class Batch:
    """Gradients of one or several steps by table, summed."""

    def __init__(self) -> None:
        self.dense: dict[str, Blocks] = {}
        self.sparse: dict[str, list[tuple[Tensor, Tensor]]] = {}
        self.rates: dict[str, float | None] = {}
        self.steps = 1

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not self.dense and not self.sparse

    def add_dense(self, table: str, blocks: Blocks, rate: float | None) -> None:
        """Add gradients; those that are stored are copies."""
        mine = self.dense.setdefault(table, {})
        for name, gradient in blocks.items():
            mine[name] = mine[name].add_(gradient) if name in mine else gradient.clone()
        self.rates[table] = rate

    def add_sparse(self, table: str, ids: Tensor, rows: Tensor, rate: float | None) -> None:
        """Add gradients of rows; copies are stored."""
        flat = ids.detach().reshape(-1)
        rows = rows.detach().reshape(len(flat), rows.shape[-1])
        self.sparse.setdefault(table, []).append((flat.clone(), rows.clone()))
        self.rates[table] = rate

    def add(self, other: Batch) -> None:
        """Add a later batch, whose learning rates take precedence."""
        for table, blocks in other.dense.items():
            self.add_dense(table, blocks, other.rates[table])
        for table, rows in other.sparse.items():
            self.sparse.setdefault(table, []).extend(rows)
        self.rates |= other.rates
        self.steps += other.steps

    def rows(self, table: str) -> tuple[Tensor, Tensor]:
        """Return all ids and rows of a table."""
        found = self.sparse[table]
        if len(found) == 1:
            return found[0]
        return torch.cat([ids for ids, _ in found]), torch.cat([rows for _, rows in found])

    def average(self) -> None:
        """Divide by the number of steps."""
        if self.steps > 1:
            for blocks in self.dense.values():
                for gradient in blocks.values():
                    gradient.div_(self.steps)
            for table in self.sparse:
                ids, rows, _ = merge_rows(*self.rows(table))
                self.sparse[table] = [(ids, rows / self.steps)]
