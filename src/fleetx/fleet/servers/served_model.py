"""PyTorch models that train with parameter servers, and models with rows in a process of their own.

When model and optimizer are both known, tables are made of them: one dense table per parameter
group, one of what is not trained, one per embedding with rows. The optimizer's `step` hands over
gradients, ends the step, and brings the parameters up to date, so that after it they are what they
would be without servers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fleetx.fleet.collective.distributed_model import LooksLikeItsModule
from fleetx.fleet.collective.distributed_optimizer import WrappedOptimizer
from fleetx.fleet.collective.observing import observe_served
from fleetx.fleet.roles.role_maker import RoleMakerBase
from fleetx.fleet.servers.program_tables import dense_table
from fleetx.fleet.servers.row_optimizer import block_settings, dense_optimizer, row_optimizer
from fleetx.fleet.servers.training_mode import ServerMode
from fleetx.ps.client.client import Client
from fleetx.ps.client.embedding import LocalTable, RowModule, ServedEmbedding
from fleetx.ps.client.first_rows import MARKER, give_rows, marker_table
from fleetx.ps.client.row_fetcher import RowFetcher
from fleetx.ps.modes.mode import Mode
from fleetx.ps.tables.table_spec import DTYPES, DenseTableSpec, OptimizerSpec
from fleetx.runtime import heartbeat
from fleetx.step.compose import compose_update
from fleetx.step.technique import Technique
from fleetx.step.train_step import TrainStep

MakeClient = Callable[[], Client]
_NO_ROWS = (
    "the rows of {name!r} cannot be updated by {optimizer}: give SparseEmbedding an optimizer of "
    "its own ('sgd', 'adagrad', 'adam' or 'ftrl')."
)


class ServedModel(LooksLikeItsModule):
    """A module whose parameters are on servers."""


class ServedOptimizer(WrappedOptimizer):
    """A torch optimizer whose update runs on servers; groups and their learning rates are its.

    `state_dict` has the groups; `fleet.save_persistables` saves the state, which is on servers.
    """

    def __init__(self, inner: Optimizer, servers: EagerServers) -> None:
        super().__init__(inner)
        self.servers = servers
        self.on_loss: Callable[[Tensor], None] | None = None
        """Callback for the loss passed to `minimize`; set by the monitor."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Hand over the gradients and fetch the parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        heartbeat.beat()
        self.servers.step(loss)
        return loss

    def minimize(self, loss: Tensor, *_: Any, **__: Any) -> tuple[None, list[Any]]:
        """Run backward and update."""
        if self.on_loss is not None:
            self.on_loss(loss)
        self.inner.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        pairs = [(p, p.grad) for g in self.param_groups for p in g["params"] if p.grad is not None]
        heartbeat.beat()
        self.servers.step(loss)
        return None, pairs


class EagerServers:
    """A worker's model and optimizer, and the tables they make."""

    def __init__(self) -> None:
        self.mode: Mode | None = None
        self._settings = ServerMode()
        self._client: MakeClient | None = None
        self._model: nn.Module | None = None
        self._optimizer: Optimizer | None = None
        self._step = TrainStep()
        self._served_model: ServedModel | None = None
        self._served_optimizer: ServedOptimizer | None = None
        self._modules: list[RowModule] = []
        self._groups: list[dict[str, Tensor]] = []
        self._rank = 0

    def model(
        self, model: nn.Module, client: MakeClient, mode: ServerMode, role: RoleMakerBase
    ) -> nn.Module:
        """Return the model as it trains with servers; on a server it stays as it is."""
        if role.is_server():
            return model
        if self._model is not None:
            raise ValueError(
                "a job with parameter servers trains one model: put all networks into one module "
                "and call fleet.distributed_model once."
            )
        self._model, self._client, self._settings = model, client, mode
        self._rank = role.worker_index()
        self._start_if_complete()
        self._served_model = ServedModel(model)
        self._observe()
        return self._served_model

    def optimizer(
        self,
        optimizer: Optimizer,
        client: MakeClient,
        mode: ServerMode,
        techniques: Sequence[Technique] = (),
    ) -> Any:
        """Return the optimizer as it trains with servers."""
        if self._optimizer is not None:
            raise ValueError(
                "a job with parameter servers has one optimizer: give it parameter groups, and "
                "call fleet.distributed_optimizer once."
            )
        self._step = TrainStep()
        compose_update(self._step, list(techniques), optimizer)
        optimizer = self._step.update
        self._optimizer, self._client, self._settings = optimizer, client, mode
        self._start_if_complete()
        self._served_optimizer = ServedOptimizer(optimizer, self)
        self._observe()
        return self._served_optimizer

    def _observe(self) -> None:
        if self._served_optimizer is not None and self._served_model is not None:
            observe_served(self._served_optimizer, self._served_model, self._settings)

    # -- tables -----------------------------------------------------------------------
    def _start_if_complete(self) -> None:
        if self._model is None or self._optimizer is None:
            return
        assert self._client is not None
        self._step.take_model(self._model)  # names for techniques that go by them
        client = self._client()
        rows = row_optimizer(self._optimizer)
        if rows is not None:
            _serve_embeddings(self._model, rows, self._settings)
        self._modules = list(row_modules(self._model))
        specs = {}
        for module in self._modules:
            spec = module.make_spec(rows)
            _check_rows(module, rows, self._optimizer, self._settings)
            specs[module.table_name] = spec
        dense, parameters = self._dense_tables(client.servers)
        fixed, constants = self._constant_tables(client.servers, set(parameters))
        mode = self._settings.make(client, [*dense, *fixed], list(specs.values()))
        given = {
            m.table_name: m.first_rows for m in self._modules if isinstance(m, ServedEmbedding)
        }
        give_rows(client, list(specs.values()), given)
        mode.start({**parameters, **constants})
        mode.pull_dense()
        for table in fixed:
            mode.leave_out(table[0].name)
        for module in self._modules:
            module.attach(_ServerRows(module.table_name, mode))
            if isinstance(module, ServedEmbedding):
                module.first_rows = module.first_rows[:0]
        self.mode = mode

    def _dense_tables(self, servers: int) -> tuple[list[list[DenseTableSpec]], dict[str, Tensor]]:
        """Return a table per parameter group and type, and the parameters by name."""
        assert self._model is not None
        assert self._optimizer is not None
        names = {id(p): name for name, p in self._model.named_parameters()}
        tables, every = [], {}
        for number, group in enumerate(self._optimizer.param_groups):
            mine = {}
            for p in group["params"]:
                if id(p) in names and p.requires_grad:
                    mine[names[id(p)]] = _plain(names[id(p)], p)
            self._groups.append(mine)
            every.update(mine)
            optimizer = dense_optimizer(self._optimizer, group)
            for dtype in dict.fromkeys(p.dtype for p in mine.values()):
                shapes = [
                    (n, tuple(p.shape), block_settings(self._optimizer, group, p))
                    for n, p in mine.items()
                    if p.dtype is dtype
                ]
                word = str(dtype).removeprefix("torch.")
                tables.append(
                    dense_table(
                        f"group{number}.{word}", word, optimizer, shapes, self._settings, servers
                    )
                )
        return tables, {name: p.detach() for name, p in every.items()}

    def _constant_tables(
        self, servers: int, trained: set[str]
    ) -> tuple[list[list[DenseTableSpec]], dict[str, Tensor]]:
        """Return tables of what all workers only start with: other parameters, and buffers."""
        assert self._model is not None
        found = {
            name: value.detach()
            for name, value in (*self._model.named_parameters(), *self._model.named_buffers())
            if name not in trained and str(value.dtype).removeprefix("torch.") in DTYPES
        }
        tables = []
        for dtype in dict.fromkeys(value.dtype for value in found.values()):
            word = str(dtype).removeprefix("torch.")
            shapes: list[Any] = [
                (n, tuple(v.shape), {}) for n, v in found.items() if v.dtype is dtype
            ]
            tables.append(
                dense_table(
                    f"constant.{word}", word, OptimizerSpec(), shapes, self._settings, servers
                )
            )
        tables.append(marker_table(servers))
        return tables, {**found, MARKER: torch.ones(1)}

    # -- a step -----------------------------------------------------------------------
    def step(self, loss: Tensor | None = None) -> None:
        """Hand over gradients, end the step, bring parameters up to date."""
        mode = self.mode
        if mode is None or self._optimizer is None:
            raise RuntimeError("call fleet.distributed_model(model) before the first step.")
        if self._step.guard is not None:
            self._step.guard.note(loss)
            # Workers of servers have no common step; the launcher ends those that are left.
            self._step.guard.stop_alone(self._rank)
        for group, mine in zip(self._optimizer.param_groups, self._groups, strict=True):
            gradients = {
                name: p.grad.to_dense() if p.grad.is_sparse else p.grad
                for name, p in mine.items()
                if p.grad is not None
            }
            if gradients:
                mode.push_dense(gradients, rate=float(group["lr"]))
        if self._settings.updates_on_worker:
            self._optimizer.step()
        rate = float(self._optimizer.param_groups[0]["lr"])
        for module in self._modules:
            module.apply_gradients(rate)
        with heartbeat.collective("end of the step on servers"):
            mode.step_end()
        with heartbeat.collective("parameters from servers"):
            mode.pull_dense()


class _ServerRows:
    """Rows of a table on servers."""

    def __init__(self, table: str, mode: Mode) -> None:
        self._table, self._mode = table, mode
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
        self._mode.push_sparse(self._table, ids, gradients, rate=rate)


def row_modules(model: nn.Module) -> Iterator[RowModule]:
    """Give the modules of a model that have rows in tables."""
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


def _check_rows(
    module: RowModule, default: OptimizerSpec | None, optimizer: Optimizer, mode: ServerMode
) -> None:
    chosen = getattr(module, "_optimizer", None)
    if chosen is None and default is None:
        raise ValueError(
            _NO_ROWS.format(name=module.table_name, optimizer=type(optimizer).__name__)
        )
    spec = module.make_spec(default).optimizer
    if mode.updates_on_worker and (spec.kind != "sgd" or spec.l2 or spec.clip):
        raise ValueError(
            f"geo training updates the rows of {module.table_name!r} by plain SGD, not by "
            f"{spec.kind!r}: use torch.optim.SGD without weight_decay, or "
            "SparseEmbedding(…, optimizer='sgd')."
        )


class LocalRows:
    """Embeddings with rows in this process: a script for servers that runs alone."""

    def __init__(self) -> None:
        self._modules: list[RowModule] = []
        self._optimizer: weakref.ref[Optimizer] | None = None

    def take_model(self, model: nn.Module, workers: int) -> None:
        """Give the embeddings of a model tables of their own."""
        found = list(row_modules(model))
        if found and workers > 1:
            raise ValueError(
                f"the model has the SparseEmbedding {found[0].table_name!r}, whose rows are on "
                "parameter servers, but this job has none: start it with fleetrun --server_num."
            )
        self._modules += found
        self._attach()

    def take_optimizer(self, optimizer: Optimizer) -> None:
        """Let the step of an optimizer update rows too."""
        self._optimizer = weakref.ref(optimizer)
        optimizer.register_step_post_hook(self._after_step)
        self._attach()

    def _attach(self) -> None:
        optimizer = None if self._optimizer is None else self._optimizer()
        if optimizer is None:
            return
        default = row_optimizer(optimizer)
        tables: dict[str, LocalTable] = {}
        for module in self._modules:
            if module._source is None:
                _check_rows(module, default, optimizer, ServerMode())
                spec = module.make_spec(default)
                module.attach(tables.setdefault(spec.name, LocalTable(spec)))

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        for module in self._modules:
            module.apply_gradients(float(optimizer.param_groups[0]["lr"]))
