"""Optimizers of sparse tables: SGD, Adagrad, Adam, FTRL, Momentum, ... on the rows of a push.

The formulas are those of programs (`fleetx.kernels`); plain SGD is an addition that the table does
in place. Only the rows of a push change: velocities and averages of other rows wait for their next
gradient. Settings are those of the rule of that name; adagrad has `epsilon` (1e-6) and
`initial_accumulator_value` (0); ftrl `l1`, `l2` (0) and `lr_power` (-0.5); adam `beta1` (0.9),
`beta2` (0.999), `epsilon` (1e-8), `scale_epsilon` (False; True multiplies epsilon by the bias
correction, as Paddle 2.x and torch.optim.Adam do) and `shared_steps`. Adam counts the updates of
every row separately, so that a row's values do not depend on the number of servers; with
`shared_steps` every push to the table is a step of all its rows, as in torch.optim.SparseAdam and
Paddle's lazy_mode, and workers have to push to all servers in every step, even without rows. Tables
of float32 have betas in single precision, as in Paddle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fleetx.kernels.gradients import penalised
from fleetx.ps.tables.rule_update import RuleUpdate, State
from fleetx.ps.tables.table_spec import OptimizerSpec

# The number of float32 values in the largest vector register.
_REGISTER = 16


class RowOptimizer:
    """An update rule for gathered rows."""

    def __init__(self, spec: OptimizerSpec, *, dim: int, dtype: torch.dtype) -> None:
        settings: dict[str, Any] = dict(spec.settings)
        self._constants: State = {}
        self._shared_steps = False
        self._fused_adam = False
        if spec.kind == "adam":
            self._shared_steps = bool(settings.pop("shared_steps", False))
            scaled = bool(settings.pop("scale_epsilon", False))
            if scaled:
                settings["use_global_beta_pow"] = False  # the setting that selects 2.x's formula
            for slot, name, start in (
                ("Beta1Tensor", "beta1", 0.9),
                ("Beta2Tensor", "beta2", 0.999),
            ):
                beta = torch.tensor(float(settings.get(name, start)), dtype=dtype)
                self._constants[slot] = beta.double()
            # The kernel rounds the last elements of an array, which do not fill a vector register,
            # differently: rows of whole registers do not depend on the rest of the push.
            whole = dim % _REGISTER == 0
            self._fused_adam = dtype is torch.float32 and whole and not scaled
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

    def first_state(self, count: int) -> State:
        """Return the state of new rows."""
        return {slot: self._start(slot, (count, width)) for slot, width in self.columns.items()}

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
        if self._fused_adam:
            self._adam(values)
        else:
            self._update([self._update.arguments(values)])

    def _adam(self, values: State) -> None:
        """Apply Adam in one pass of the rule's fused kernel and a second pass.

        The kernel supports one bias correction per call, but each row has its own. So the rule
        updates zeros, at a rate of one and without correction, and the result is scaled row by row.
        """
        direction = torch.zeros_like(values["Param"])
        plain = {
            "Param": direction,
            "Grad": values["Grad"],
            "LearningRate": torch.ones(1),
            "Moment1": values["Moment1"],
            "Moment2": values["Moment2"],
            "Beta1Pow": torch.zeros(1),
            "Beta2Pow": torch.zeros(1),
        }
        self._update([self._update.arguments(plain)])
        power1, power2 = values["Beta1Pow"], values["Beta2Pow"]
        scale = (1 - power2).sqrt_().div_(1 - power1).mul_(values["LearningRate"])
        values["Param"].addcmul_(direction, scale)
        power1.mul_(values["Beta1Tensor"].item())
        power2.mul_(values["Beta2Tensor"].item())
