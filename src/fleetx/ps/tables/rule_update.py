"""One update of one tensor by an update rule, the same function that a program's op calls.

A rule declares its state: everything it changes besides the parameter. State has the names of the
op's slots ("Moment1", "Velocity", …), in saved tables too. Clipping and penalties are applied
first, in the order of `Optimizer.minimize`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fleetx.kernels.gradients import clip_by_norm
from fleetx.kernels.updates import RULES
from fleetx.ps.tables.spec_checks import SpecError
from fleetx.ps.tables.table_spec import ClipSpec

# State with a nonzero initial value: the value of this setting.
_STARTS_AT = {"Beta1Pow": "beta1", "Beta2Pow": "beta2"}
_START = "initial_accumulator_value"
# A setting of every rule: False if updates have no learning rate, as Paddle's Adadelta of 1.x.
TAKES_RATE = "takes_rate"

State = dict[str, Tensor]


class RuleUpdate:
    """An update rule with its settings."""

    def __init__(self, kind: str, settings: Mapping[str, Any]) -> None:
        self._rule = RULES[kind]
        self._arguments = self._rule.arguments
        settings = dict(settings)
        self.takes_rate = bool(settings.pop(TAKES_RATE, True))
        self._start = float(settings.pop(_START, 0.0)) if kind == "adagrad" else 0.0
        known = self._rule.keywords
        if not set(settings) <= known:
            wrong = ", ".join(sorted(set(settings) - known))
            raise SpecError(
                f"optimizer {kind!r} has no setting {wrong}; it has {', '.join(sorted(known))}."
            )
        self.settings = {**self._rule.settings, **settings}
        # Powers that a rule only reads: a program multiplies them by an op of its own.
        self._powers = tuple(
            slot for slot in self._arguments if slot in _STARTS_AT and slot not in self._rule.state
        )
        self.slots = self._powers + tuple(
            slot for slot in self._rule.state if slot != "MeanGrad" or self.settings.get("centered")
        )

    def start_of(self, slot: str) -> float:
        """Return the initial value of a state slot."""
        name = _STARTS_AT.get(slot)
        if name is not None:
            return float(self.settings[name])
        return self._start

    def is_shared(self, slot: str) -> bool:
        """Return whether the state is one number for the whole tensor."""
        return slot in _STARTS_AT

    def first_state(self, param: Tensor) -> State:
        """Return the state of a parameter before its first update."""
        return {
            slot: torch.full(
                (1,) if self.is_shared(slot) else tuple(param.shape),
                self.start_of(slot),
                dtype=param.dtype,
            )
            for slot in self.slots
        }

    def arguments(self, values: Mapping[str, Tensor]) -> tuple[Tensor | None, ...]:
        """Return the tensors, given by name, in the order of the rule's arguments."""
        return tuple(
            None if name == "LearningRate" and not self.takes_rate else values.get(name)
            for name in self._arguments
        )

    def __call__(self, calls: Sequence[tuple[Tensor | None, ...]]) -> None:
        """Update several parameters in place, in one fused call if the rule has one."""
        if self._rule.fused is not None and len(calls) > 1:
            self._rule.fused(calls, **self.settings)
        else:
            for call in calls:
                self._rule.function(*call, **self.settings)
        for slot in self._powers:
            index = self._arguments.index(slot)
            for call in calls:
                power = call[index]
                assert power is not None
                power.mul_(self.start_of(slot))


def clipped(grad: Tensor, clip: ClipSpec | None, norm: float | None = None) -> Tensor:
    """Return a clipped gradient.

    `norm` is the norm to use; without it "norm" uses the gradient's own. It is required for
    "global_norm".
    """
    if clip is None:
        return grad
    if clip.kind == "value":
        return grad.clamp(-clip.limit if clip.low is None else clip.low, clip.limit)
    if norm is None:
        return clip_by_norm(grad, max_norm=clip.limit)
    norm += clip.epsilon
    return grad if norm <= clip.limit else grad * (clip.limit / norm)
