"""Embeddings with rows in this process: a script for parameter servers that runs alone."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from fleetx.checkpoint.manifest import load_state, save_state
from fleetx.ps.client.embedding import LocalTable, RowModule
from fleetx.ps.modes.server_mode import ServerMode
from fleetx.ps.tables.table_files import SERVERS, load_table, save_table
from fleetx.step.stages import Stage
from fleetx.step.technique import Technique
from fleetx.step.train_step import TrainStep
from fleetx.techniques.served_optimizers import row_optimizer
from fleetx.techniques.served_tables import check_rows, row_modules

# The folder of a save with the parameters that are not rows.
_MODELS = "__models__"


class LocalRows:
    """Gives the embeddings of models tables of their own, and updates their rows."""

    def __init__(self) -> None:
        self._modules: list[RowModule] = []
        self._models: list[nn.Module] = []
        self._optimizer: weakref.ref[Optimizer] | None = None

    def take_model(self, model: nn.Module, workers: int) -> None:
        """Attach local tables to the embeddings of a model."""
        found = list(row_modules(model))
        if found and workers > 1:
            raise ValueError(
                f"the model has the SparseEmbedding {found[0].table_name!r}, whose rows are on "
                "parameter servers, but this job has none: start it with fleetrun --server_num."
            )
        self._modules += found
        if found:
            self._models.append(model)
        self._attach()

    @property
    def has_rows(self) -> bool:
        """Whether a model has rows in tables of this process."""
        return bool(self._models)

    def save(self, dirname: str) -> None:
        """Write all tables with their state, as servers do, and the models' other parameters."""
        tables = self._tables()
        if len(tables) < len({module.table_name for module in self._modules}):
            raise RuntimeError("there is nothing to save yet: train first.")
        for table in tables:
            save_table(os.path.join(dirname, SERVERS), table.table, token=secrets.token_hex(8))
        save_state(os.path.join(dirname, _MODELS), self._dense())

    def load(self, dirname: str) -> None:
        """Load what `save` wrote."""
        state, _ = load_state(os.path.join(dirname, _MODELS))
        own = self._dense()
        if state.keys() != own.keys():
            wrong = sorted(state.keys() ^ own.keys())[0]
            raise ValueError(
                f"{dirname!r} holds the parameters of another model: {wrong!r} is only in one of "
                "them."
            )
        for table in self._tables():
            load_table(os.path.join(dirname, SERVERS), table.table)
        for name, value in own.items():
            value.copy_(state[name])

    def _tables(self) -> list[LocalTable]:
        found = [module.source for module in self._modules]
        return list({id(each): each for each in found if isinstance(each, LocalTable)}.values())

    def _dense(self) -> dict[str, Tensor]:
        """Return the parameters and buffers of all models, by number and name."""
        return {
            f"{number}/{name}": value
            for number, model in enumerate(self._models)
            for name, value in model.state_dict().items()
        }

    def take_optimizer(self, optimizer: Optimizer) -> None:
        """Make the step of an optimizer update rows too."""
        self._optimizer = weakref.ref(optimizer)
        optimizer.register_step_post_hook(self._after_step)
        self._attach()

    def check(self, step: TrainStep, techniques: Sequence[Technique]) -> None:
        """Refuse techniques that change gradients or the update: rows would not follow them."""
        names = [t.name for t in techniques if t.replaces | t.wraps != {Stage.MEMORY}]
        changed = (
            not step.grad_sync.during_backward
            or step.clip is not None
            or step.precision.expects_overflow()
            or (self._optimizer is not None and self._optimizer() is not step.update)
        )
        if self._modules and changed:
            raise ValueError(
                f"the strategy switches on {' and '.join(names)}, but without parameter servers "
                f"the rows of the SparseEmbedding {self._modules[0].table_name!r} follow only the "
                "optimizer's plain update: switch it off, or start the job with fleetrun "
                "--server_num."
            )

    def _attach(self) -> None:
        optimizer = None if self._optimizer is None else self._optimizer()
        if optimizer is None:
            return
        default = row_optimizer(optimizer)
        tables: dict[str, LocalTable] = {}
        for module in self._modules:
            if module.source is None:
                check_rows(module, default, optimizer, ServerMode())
                spec = module.make_spec(default)
                module.source = tables.setdefault(spec.name, LocalTable(spec))

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        for module in self._modules:
            module.apply_gradients(float(optimizer.param_groups[0]["lr"]))


class OnePair:
    """A job with parameter servers trains one model with one optimizer; the technique has its
    rows."""

    def __init__(self) -> None:
        self._has_model = self._has_optimizer = False

    def take_model(self, model: nn.Module, workers: int) -> None:
        """Refuse a second model."""
        if self._has_model:
            raise ValueError(
                "a job with parameter servers trains one model: put all networks into one module "
                "and call fleet.distributed_model once."
            )
        self._has_model = True

    def check(self, step: TrainStep, techniques: Sequence[Technique]) -> None:
        """Accept all techniques: those that do not go with servers are refused by composition."""

    def take_optimizer(self, optimizer: Optimizer) -> None:
        """Refuse a second optimizer."""
        if self._has_optimizer:
            raise ValueError(
                "a job with parameter servers has one optimizer: give it parameter groups, and "
                "call fleet.distributed_optimizer once."
            )
        self._has_optimizer = True
