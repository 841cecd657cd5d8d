"""Optimizers of sparse tables: SGD, Adagrad, Adam, FTRL, Momentum, ... on the rows of a push.

The formulas are those of programs (`fleetx.kernels`); plain SGD is an addition, and Adagrad, Adam
and FTRL are updates that the row store does in place. Only the rows of a push change: velocities
and averages of other rows wait for their next gradient. Settings are those of the rule of that
name; adagrad has `epsilon` (1e-6) and `initial_accumulator_value` (0); ftrl `l1`, `l2` (0) and
`lr_power` (-0.5); adam `beta1` (0.9), `beta2` (0.999), `epsilon` (1e-8), `scale_epsilon` (False;
True multiplies epsilon by the bias correction, as Paddle 2.x and torch.optim.Adam do) and
`shared_steps`. Adam counts the updates of every row separately, so that a row's values do not
depend on the number of servers; with `shared_steps` every push to the table is a step of all its
rows, as in torch.optim.SparseAdam and Paddle's lazy_mode, and workers have to push to all servers
in every step, even without rows. Tables of float32 have betas in single precision, as in Paddle.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fleetx.kernels import native
from fleetx.kernels.gradients import penalised
from fleetx.ps.tables.rule_update import RuleUpdate, State
from fleetx.ps.tables.table_spec import OptimizerSpec

# What Paddle adds to FTRL's l1 and l2, so that a coefficient of zero does not divide by zero.
_FTRL_ADDS = 1e-10


class RowOptimizer:
    """An update rule for gathered rows."""

    def __init__(self, spec: OptimizerSpec, *, dim: int, dtype: torch.dtype) -> None:
        settings: dict[str, Any] = dict(spec.settings)
        self._constants: State = {}
        self._shared_steps = False
        if spec.kind == "adam":
            self._shared_steps = bool(settings.pop("shared_steps", False))
            if settings.pop("scale_epsilon", False):
                settings["use_global_beta_pow"] = False  # the setting that selects 2.x's formula
            for slot, name, start in (
                ("Beta1Tensor", "beta1", 0.9),
                ("Beta2Tensor", "beta2", 0.999),
            ):
                beta = torch.tensor(float(settings.get(name, start)), dtype=dtype)
                self._constants[slot] = beta.double()
        self._update = RuleUpdate(spec.kind, settings)
        self._spec = spec
        self._dtype = dtype
        one_for_all = {slot for slot in self._update.slots if self._update.is_shared(slot)}
        self.columns: dict[str, int] = {
            slot: 1 if slot in one_for_all else dim
            for slot in self._update.slots
            if not (self._shared_steps and slot in one_for_all)
        }
        """The state of a row: numbers per slot, by name."""
        self.table_state: State = {
            slot: self._start(slot, (1,)) for slot in one_for_all if self._shared_steps
        }
        """The state shared by all rows."""

    def _start(self, slot: str, shape: tuple[int, ...]) -> Tensor:
        return torch.full(shape, self._update.start_of(slot), dtype=self._dtype)

    def first_state(self, count: int, *, skip: Container[str] = ()) -> State:
        """Return the state of new rows, except for some columns."""
        return {
            slot: self._start(slot, (count, width))
            for slot, width in self.columns.items()
            if slot not in skip
        }

    def scale(self, rate: float) -> float | None:
        """Return the factor if an update only adds scaled gradients to rows (SGD)."""
        plain = self._spec.kind == "sgd" and not self._spec.l1 and not self._spec.l2
        return -rate if plain else None

    def update(self, param: Tensor, grad: Tensor, state: Mapping[str, Tensor], rate: float) -> None:
        """Update rows and their state in place."""
        spec = self._spec
        values = {
            "Param": param,
            "Grad": penalised(grad, param, l1=spec.l1, l2=spec.l2),
            "LearningRate": torch.tensor([rate], dtype=self._dtype),
            **self._constants,
            **state,
            **self.table_state,
        }
        self._update([self._update.arguments(values)])

    def update_in_place(
        self, store: native.RowStore, rows: np.ndarray, grads: np.ndarray, rate: float
    ) -> bool:
        """Update distinct rows of a store of records; return whether the store can do it."""
        spec, settings = self._spec, self._update.settings
        decays = spec.l1 or spec.l2 or settings.get("regularization_coeff")
        if decays or not self._update.takes_rate:
            return False
        if spec.kind == "adagrad":
            numbers = [rate, settings["epsilon"]]
        elif spec.kind == "ftrl" and settings["lr_power"] == -0.5:
            numbers = [rate, settings["l1"] + _FTRL_ADDS, settings["l2"] + _FTRL_ADDS]
        elif spec.kind == "adam":
            betas = [float(self._constants[slot]) for slot in ("Beta1Tensor", "Beta2Tensor")]
            powers = [
                float(self.table_state[slot]) if self._shared_steps else math.nan
                for slot in ("Beta1Pow", "Beta2Pow")
            ]
            scaled = settings.get("use_global_beta_pow") is not None
            numbers = [rate, *betas, settings["epsilon"], scaled, *powers]
        else:
            return False
        store.update(spec.kind, rows, grads, np.array(numbers, np.float64))
        if self._shared_steps:
            for slot, beta in (("Beta1Pow", "Beta1Tensor"), ("Beta2Pow", "Beta2Tensor")):
                self.table_state[slot].mul_(float(self._constants[beta]))
        return True
