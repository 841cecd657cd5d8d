"""One update of one tensor by an update op of the static engine: the same code as in a program.

An op's slots tell what state it keeps: whatever it updates in place beside the parameter. State is
named by slot ("Moment1", "Velocity", …), in saved tables too. Clipping and penalties come first, in
the order of `Optimizer.minimize`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fleetx.ps.table_spec import ClipSpec, SpecError
from fleetx.static import ops  # noqa: F401  (registers the ops)
from fleetx.static.op_registry import get_op
from fleetx.static.ops.elementwise import clip_by_norm

# Keywords of the functions that are no settings.
_INTERNAL = frozenset({"rows", "ctx", "lod"})
# State that starts at something else than zero: at the value of this setting.
_STARTS_AT = {"Beta1Pow": "beta1", "Beta2Pow": "beta2"}
_START = "initial_accumulator_value"

State = dict[str, Tensor]


class OpUpdate:
    """An update op with its attributes."""

    def __init__(self, kind: str, settings: Mapping[str, Any]) -> None:
        self._op = get_op(kind)
        settings = dict(settings)
        self._start = float(settings.pop(_START, 0.0)) if kind == "adagrad" else 0.0
        known = (self._op.names | set(self._op.attrs)) - _INTERNAL
        if not set(settings) <= known:
            wrong = ", ".join(sorted(set(settings) - known))
            raise SpecError(
                f"optimizer {kind!r} has no setting {wrong}; it has {', '.join(sorted(known))}."
            )
        defaults = {name: attr.default for name, attr in self._op.attrs.items()}
        every = {**defaults, **settings}
        self.attrs = {name: v for name, v in every.items() if name in self._op.names}
        self.slots = tuple(
            slot
            for slot in self._op.inplace.values()
            if slot != "Param" and (slot != "MeanGrad" or self.attrs.get("centered"))
        )

    def start_of(self, slot: str) -> float:
        """Return the first value of a piece of state."""
        name = _STARTS_AT.get(slot)
        if name is not None:
            return float(self.attrs[name])
        return self._start

    def is_shared(self, slot: str) -> bool:
        """Tell whether the state is one number for the whole tensor."""
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
        """Return the tensors, by slot, in the order of the op's arguments."""
        return tuple(values.get(slot.name) for slot in self._op.inputs)

    def __call__(self, calls: Sequence[tuple[Tensor | None, ...]]) -> None:
        """Update several parameters in place, in one fused call where the op has one."""
        if self._op.fused is not None and len(calls) > 1:
            attrs = {name: v for name, v in self.attrs.items() if name not in _INTERNAL}
            self._op.fused(calls, **attrs)
            return
        for call in calls:
            self._op.fn(*call, **self.attrs)


def square_norm(grads: Sequence[Tensor]) -> float:
    """Return the sum of squares of all elements."""
    return sum(float(grad.square().sum()) for grad in grads)


def clipped(grad: Tensor, clip: ClipSpec | None, norm: float | None = None) -> Tensor:
    """Return a clipped gradient.

    `norm` is the norm to go by; without it "norm" takes the gradient's own. For "global_norm" it
    must be given.
    """
    if clip is None:
        return grad
    if clip.kind == "value":
        return grad.clamp(-clip.limit if clip.low is None else clip.low, clip.limit)
    if norm is None:
        return clip_by_norm(grad, max_norm=clip.limit)
    return grad if norm <= clip.limit else grad * (clip.limit / norm)


def penalised(grad: Tensor, param: Tensor, *, l1: float, l2: float) -> Tensor:
    """Return the gradient with that of the penalties l1 * |p| and l2 / 2 * p^2."""
    if l2:
        grad = grad.add(param, alpha=l2)
    return grad.add(param.sign(), alpha=l1) if l1 else grad
