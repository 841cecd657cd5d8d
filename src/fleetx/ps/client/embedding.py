"""SparseEmbedding: an embedding whose rows are in a table, on parameter servers or in this process.

    embedding = fleetx.SparseEmbedding("user", 16)
    vectors = embedding(ids)          # ids of any shape, any 64-bit numbers

Rows are created when an id is first trained. A forward pass fetches the rows of the batch's unique
ids as a leaf of autograd; backward collects their merged gradients here, and the step of the
optimizer returned by `fleet.distributed_optimizer` pushes them to the table. In a job without
servers the table is local to this process, so that the same script runs standalone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fleetx.kernels.fetched_rows import spread_rows
from fleetx.kernels.index import check_range, integer_ids, unique_ids
from fleetx.ps.tables.entries import entry_spec
from fleetx.ps.tables.row_rules import EvictionSpec
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.spec_checks import SpecError
from fleetx.ps.tables.table_spec import (
    SPARSE_OPTIMIZERS,
    InitializerSpec,
    OptimizerSpec,
    SparseTableSpec,
)

# More forward passes than this without an optimizer step are an error of the script.
_MOST_PENDING = 1024

# Names of update rules that are another one with settings.
_NAMED = {"sparse_adam": ("adam", {"scale_epsilon": True, "shared_steps": True})}


class RowSource(Protocol):
    """The source of rows and the destination of their gradients."""

    def expect(self, ids: Tensor) -> None:
        """Prefetch the rows of the next step's ids (flat), if the source supports it."""

    def pull(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the unique ids, the index of each id among them, and their rows."""

    def push(self, ids: Tensor, gradients: Tensor, rate: float | None) -> None:
        """Push gradients of rows."""


class LocalTable:
    """A table in this process."""

    def __init__(self, spec: SparseTableSpec) -> None:
        self.table = SparseTable(spec)

    def expect(self, ids: Tensor) -> None:
        """Do nothing: all rows are local."""

    def pull(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the unique ids, the index of each id among them, and their rows."""
        keys, places = unique_ids(ids)
        return keys, places, self.table.pull(keys)

    def push(self, ids: Tensor, gradients: Tensor, rate: float | None) -> None:
        """Update rows."""
        self.table.push(ids, gradients, rate=rate)


class RowModule(nn.Module):
    """A module with rows in a table, which subclasses specify."""

    padding_reads_zero = True

    def __init__(self, name: str, dim: int, padding_idx: int | None) -> None:
        super().__init__()
        self.table_name = name
        self.dim = dim
        self.padding_idx = padding_idx
        self._optimizer: OptimizerSpec | str | None = None
        self.source: RowSource | None = None
        """The source of rows; None if it is not known yet."""
        self._gradients: list[tuple[Tensor, Tensor]] = []

    def make_spec(self, default: OptimizerSpec | None) -> SparseTableSpec:
        """Return the table's specification; `default` is the optimizer of the other parameters."""
        raise NotImplementedError

    @property
    def has_optimizer(self) -> bool:
        """Whether the rows have an optimizer of their own."""
        return self._optimizer is not None

    @property
    def own_rate(self) -> float | None:
        """The learning rate of these rows, if it differs from that of the other parameters."""
        return None

    @property
    def local_table(self) -> SparseTable | None:
        """The table of this process that rows come from; None if they are on servers."""
        source = self._rows()
        return source.table if isinstance(source, LocalTable) else None

    def _rows(self) -> RowSource:
        if self.source is None:
            self.source = LocalTable(self.make_spec(None))
        return self.source

    def prefetch(self, ids: Tensor) -> None:
        """Prefetch the rows of the next step's ids during the current step.

        Call it before the optimizer's step; the next forward pass with the same ids then need not
        wait. It does not change results in synchronous training.
        """
        self._rows().expect(self._checked(ids))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows of ids: ids.shape + (dim,)."""
        flat = self._checked(ids)
        keys, places, rows = self._rows().pull(flat)
        if torch.is_grad_enabled():
            rows.requires_grad_()
            rows.register_post_accumulate_grad_hook(self._keeper(keys))
        out = spread_rows(rows, places.reshape(ids.shape))
        if self.padding_idx is not None and self.padding_reads_zero:
            out = out * (flat != self.padding_idx).reshape(*ids.shape, 1)
        return out

    def _checked(self, ids: Tensor) -> Tensor:
        """Return ids as a flat int64 tensor; reject ids that cannot be looked up."""
        return integer_ids(ids, self.table_name)

    def _keeper(self, keys: Tensor) -> Callable[[Tensor], None]:
        def keep(rows: Tensor) -> None:
            gradient, rows.grad = rows.grad, None
            assert gradient is not None
            if self.padding_idx is not None:
                trained = keys != self.padding_idx
                self._keep(keys[trained], gradient[trained])
            else:
                self._keep(keys, gradient)

        return keep

    def _keep(self, keys: Tensor, gradient: Tensor) -> None:
        if len(self._gradients) >= _MOST_PENDING:
            raise RuntimeError(
                f"the rows of {self.table_name!r} have gradients of {_MOST_PENDING} passes that no "
                "optimizer has applied: pass the model to fleet.distributed_model and the "
                "optimizer to fleet.distributed_optimizer, or call apply_gradients(rate)."
            )
        self._gradients.append((keys, gradient))

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients of rows that have not been pushed yet."""
        return [gradient for _, gradient in self._gradients]

    def forget_gradients(self) -> None:
        """Discard the gradients that have not been pushed yet."""
        self._gradients = []

    def gradient_state(self) -> dict[str, Tensor]:
        """Return ids and gradients that have not been pushed yet; empty if there are none."""
        if not self._gradients:
            return {}
        ids, gradients = zip(*self._gradients, strict=True)
        return {"ids": torch.cat(ids), "gradients": torch.cat(gradients)}

    def load_gradient_state(self, state: Mapping[str, Tensor]) -> None:
        """Replace the gradients by what `gradient_state` returned."""
        self._gradients = [(state["ids"].clone(), state["gradients"].clone())] if state else []

    def apply_gradients(self, rate: float | None = None) -> None:
        """Push the gradients collected since the last call; called by fleet's optimizer."""
        state, own = self.gradient_state(), self.own_rate
        self.forget_gradients()
        if state:
            rate = rate if own is None else own
            self._rows().push(state["ids"], state["gradients"], rate)


class SparseEmbedding(RowModule):
    """An embedding for any number of 64-bit ids.

    Args:
        name: the table's name; embeddings with the same name share rows.
        dim: the length of a row.
        initializer: the initial values of rows: an InitializerSpec, or the name of one.
        optimizer: the update rule of rows, "sgd", "adagrad", "adam", "sparse_adam", "ftrl" or an
            OptimizerSpec with a learning rate of its own; by default that of the other parameters.
            "adam" counts the updates of each row, "sparse_adam" those of the table, as
            torch.optim.SparseAdam does.
        entry: the admission rule of new ids: CountFilterEntry or ProbabilityEntry.
        eviction: the eviction rule of rows. EvictionSpec(max_unseen=30, every=1000) searches the
            table after every 1000 pushes to it, and drops rows that have not been pushed for more
            than 30 searches. On servers, `max_unseen`, `min_score` and `score_decay` need
            `every`; a table of this process can also be searched by the script:
            `embedding.local_table.evict(clock=...)`.
        padding_idx: an id that reads as zeros and is not trained.
        dtype: float32 or float64.
        seed: determines initial values together with the id; derived from the name by default.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        *,
        initializer: InitializerSpec | str | None = None,
        optimizer: OptimizerSpec | str | None = None,
        entry: Any = None,
        eviction: EvictionSpec | None = None,
        padding_idx: int | None = None,
        dtype: torch.dtype = torch.float32,
        seed: int | None = None,
    ) -> None:
        super().__init__(name, dim, padding_idx)
        if initializer is None:
            initializer = InitializerSpec(kind="normal", settings={"std": 0.01})
        elif isinstance(initializer, str):
            initializer = InitializerSpec(kind=initializer)
        elif not isinstance(initializer, InitializerSpec):
            raise TypeError(
                f"the initializer of a SparseEmbedding is a name or an InitializerSpec, not "
                f"{initializer!r}: for example InitializerSpec('normal', {{'std': 0.01}})."
            )
        self._optimizer = optimizer
        self._spec = SparseTableSpec(
            name=name,
            dim=dim,
            dtype=str(dtype).removeprefix("torch."),
            initializer=initializer,
            entry=entry_spec(entry),
            eviction=eviction,
            seed=seed,
        )
        self.make_spec(None)  # rejects an invalid optimizer early

    def make_spec(self, default: OptimizerSpec | None) -> SparseTableSpec:
        """Return the table's specification; `default` is the optimizer of the other parameters."""
        chosen = self._optimizer
        if chosen is None:
            chosen = default or OptimizerSpec()
        elif isinstance(chosen, str):
            if chosen not in (known := (*SPARSE_OPTIMIZERS, *_NAMED)):
                raise SpecError(
                    f"SparseEmbedding({self.table_name!r}) has optimizer={chosen!r}: use "
                    f"{', '.join(known)}."
                )
            rate = 0.01 if default is None else default.rate
            kind, settings = _NAMED.get(chosen, (chosen, {}))
            chosen = OptimizerSpec(kind=kind, rate=rate, settings=settings)
        return dataclasses.replace(self._spec, optimizer=chosen)

    @property
    def own_rate(self) -> float | None:
        """The learning rate of these rows, if it differs from that of the other parameters."""
        return self._optimizer.rate if isinstance(self._optimizer, OptimizerSpec) else None

    def extra_repr(self) -> str:
        """Return name and dim."""
        return f"{self.table_name!r}, {self.dim}"


class ServedEmbedding(RowModule):
    """The replacement of an `nn.Embedding(sparse=True)` in a job with servers; its weight provides
    the initial rows."""

    padding_reads_zero = False  # as in nn.Embedding, which only does not train it

    def __init__(self, name: str, module: nn.Embedding, optimizer: OptimizerSpec) -> None:
        super().__init__(name, module.embedding_dim, module.padding_idx)
        self.num_embeddings, self.embedding_dim = module.num_embeddings, module.embedding_dim
        self.first_rows = module.weight.detach()
        self._optimizer = self._rule = optimizer

    def make_spec(self, default: OptimizerSpec | None) -> SparseTableSpec:
        """Return the table's specification."""
        dtype = str(self.first_rows.dtype).removeprefix("torch.")
        return SparseTableSpec(
            name=self.table_name, dim=self.dim, dtype=dtype, optimizer=self._rule
        )

    def _checked(self, ids: Tensor) -> Tensor:
        """Return ids as a flat int64 tensor; raise an error for an id outside the table, as
        nn.Embedding does."""
        flat = super()._checked(ids)
        check_range(flat, self.table_name, self.num_embeddings)
        return flat
