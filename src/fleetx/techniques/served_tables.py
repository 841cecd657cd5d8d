"""The tables that a module's parameters become on servers, and the rows of its embeddings.

One dense table per parameter group and type, one of what is not trained, one per embedding with
rows. What an optimizer does becomes the specification of its tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fleetx.ps.client.client import Client
from fleetx.ps.client.embedding import RowModule, ServedEmbedding
from fleetx.ps.client.first_rows import MARKER, give_rows, marker_table
from fleetx.ps.client.row_fetcher import RowFetcher
from fleetx.ps.modes.mode import Mode
from fleetx.ps.modes.server_mode import ServerMode, dense_table
from fleetx.ps.tables.table_spec import (
    DTYPES,
    ClipSpec,
    DenseTableSpec,
    OptimizerSpec,
    SparseTableSpec,
)
from fleetx.ps.tables.usage import check_served
from fleetx.runtime import heartbeat
from fleetx.techniques.served_optimizers import block_settings, dense_optimizer, row_optimizer

_NO_ROWS = (
    "the rows of {name!r} cannot be updated by {optimizer}: give SparseEmbedding an optimizer of "
    "its own ('sgd', 'adagrad', 'adam' or 'ftrl')."
)


@dataclass
class ServedTables:
    """The tables of a model and its optimizer."""

    groups: list[dict[str, Tensor]] = field(default_factory=list)
    """The parameters in dense tables, by name, for each parameter group."""
    dense: list[list[DenseTableSpec]] = field(default_factory=list)
    """Every dense table, as one specification per server."""
    sparse: list[SparseTableSpec] = field(default_factory=list)
    modules: list[RowModule] = field(default_factory=list)
    """The modules with rows in tables."""

    @property
    def trained(self) -> dict[str, Tensor]:
        """All parameters in dense tables, by name."""
        return {name: p for group in self.groups for name, p in group.items()}


def make_tables(
    model: nn.Module, optimizer: Optimizer, mode: ServerMode, servers: int, clip: ClipSpec | None
) -> ServedTables:
    """Return the tables of a model; embeddings with sparse gradients get rows on servers."""
    found = ServedTables()
    rows = row_optimizer(optimizer)
    if rows is not None:
        rows = replace(rows, clip=clip)
        _serve_embeddings(model, rows, mode)
    for module in row_modules(model):
        check_rows(module, rows, optimizer, mode)
        found.modules.append(module)
    found.sparse = list({m.table_name: m.make_spec(rows) for m in found.modules}.values())
    for spec in found.sparse:
        check_served(spec)
        if servers > 1 and spec.optimizer.settings.get("shared_steps"):
            raise ValueError(
                f"the rows of {spec.name!r} are updated by sparse_adam, which counts the updates "
                f"of a whole table, but the table is on {servers} servers: use 'adam', which "
                "counts those of each row, or start one server."
            )
    names = {id(p): name for name, p in model.named_parameters()}
    for number, group in enumerate(optimizer.param_groups):
        mine = {
            names[id(p)]: _plain(names[id(p)], p)
            for p in group["params"]
            if id(p) in names and p.requires_grad
        }
        found.groups.append(mine)
        update = dense_optimizer(optimizer, group, clip)
        for dtype in dict.fromkeys(p.dtype for p in mine.values()):
            shapes = [
                (n, tuple(p.shape), block_settings(optimizer, group, p))
                for n, p in mine.items()
                if p.dtype is dtype
            ]
            word = str(dtype).removeprefix("torch.")
            found.dense.append(
                dense_table(f"group{number}.{word}", word, update, shapes, mode, servers)
            )
    return found


def start(model: nn.Module, tables: ServedTables, mode: ServerMode, client: Client) -> Mode:
    """Make the tables on the servers and agree on the first values; return what to train with."""
    fixed, constants = _constant_tables(model, set(tables.trained), mode, client.cut)
    made = mode.make(client, [*tables.dense, *fixed], tables.sparse)
    given = {m.table_name: m.first_rows for m in tables.modules if isinstance(m, ServedEmbedding)}
    give_rows(client, tables.sparse, given)
    made.start({**{name: p.detach() for name, p in tables.trained.items()}, **constants})
    made.pull_dense()
    for table in fixed:
        made.leave_out(table[0].name)
    for module in tables.modules:
        module.source = _ServerRows(module.table_name, made)
        if isinstance(module, ServedEmbedding):
            module.first_rows = module.first_rows[:0]
    return made


def _constant_tables(
    model: nn.Module, trained: set[str], mode: ServerMode, servers: int
) -> tuple[list[list[DenseTableSpec]], dict[str, Tensor]]:
    """Return tables of what all workers only start with: other parameters, and buffers."""
    found = {
        name: value.detach()
        for name, value in (*model.named_parameters(), *model.named_buffers())
        if name not in trained and str(value.dtype).removeprefix("torch.") in DTYPES
    }
    tables = []
    for dtype in dict.fromkeys(value.dtype for value in found.values()):
        word = str(dtype).removeprefix("torch.")
        shapes: list[Any] = [(n, tuple(v.shape), {}) for n, v in found.items() if v.dtype is dtype]
        tables.append(dense_table(f"constant.{word}", word, OptimizerSpec(), shapes, mode, servers))
    tables.append(marker_table(servers))
    return tables, {**found, MARKER: torch.ones(1)}


class _ServerRows:
    """Rows of a table on servers."""

    def __init__(self, table: str, mode: Mode) -> None:
        self._table, self.mode = table, mode
        self._fetcher = RowFetcher(mode)

    def expect(self, ids: Tensor) -> None:
        """Begin to fetch rows of the next step."""
        self._fetcher.expect(self._table, ids)

    def pull(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Fetch rows."""
        fetch = self._fetcher.fetch(self._table, ids)
        with heartbeat.collective("rows from servers"):
            return fetch.keys, fetch.places, fetch.rows.wait()

    def push(self, ids: Tensor, gradients: Tensor, rate: float | None) -> None:
        """Send gradients."""
        self.mode.push_sparse(self._table, ids, gradients, rate=rate)


def row_modules(model: nn.Module) -> Iterator[RowModule]:
    """Iterate over the modules of a model that have rows in tables."""
    return (module for module in model.modules() if isinstance(module, RowModule))


def _plain(name: str, parameter: Tensor) -> Tensor:
    if parameter.device.type != "cpu":
        raise ValueError(
            f"parameter {name!r} is on {parameter.device}, but models train on the CPU in a job "
            "with parameter servers."
        )
    if not parameter.is_contiguous():
        parameter.data = parameter.data.contiguous()
    return parameter


def _serve_embeddings(model: nn.Module, optimizer: OptimizerSpec, mode: ServerMode) -> None:
    """Put tables in the place of ordinary embeddings with sparse gradients."""
    plain_sgd = optimizer.kind == "sgd" and not optimizer.l2
    if mode.updates_on_worker and not plain_sgd:
        return
    shared: dict[int, int] = {}
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            shared[id(module.weight)] = shared.get(id(module.weight), 0) + 1
    for parent_name, parent in list(model.named_modules()):
        for child_name, child in list(parent.named_children()):
            plain = isinstance(child, nn.Embedding) and child.sparse
            if plain and shared[id(child.weight)] == 1 and child.max_norm is None:
                path = f"{parent_name}.{child_name}" if parent_name else child_name
                setattr(parent, child_name, ServedEmbedding(f"{path}.weight", child, optimizer))


def check_rows(
    module: RowModule, default: OptimizerSpec | None, optimizer: Optimizer, mode: ServerMode
) -> None:
    """Refuse rows that nothing updates, or that a mode cannot update."""
    if default is None and not module.has_optimizer:
        raise ValueError(
            _NO_ROWS.format(name=module.table_name, optimizer=type(optimizer).__name__)
        )
    table = module.make_spec(default)
    spec, eviction = table.optimizer, table.eviction
    if mode.updates_on_worker and eviction is not None and eviction.every is not None:
        raise ValueError(
            f"the eviction of table {module.table_name!r} has every={eviction.every}, but geo "
            "training keeps rows on the workers too, which would go on with those that servers "
            "have dropped: use sync or async training, or leave out the eviction."
        )
    if mode.updates_on_worker and (spec.kind != "sgd" or spec.l2 or spec.clip):
        raise ValueError(
            f"geo training updates the rows of {module.table_name!r} by plain SGD, not by "
            f"{spec.kind!r}: use torch.optim.SGD without weight_decay, or "
            "SparseEmbedding(…, optimizer='sgd')."
        )
