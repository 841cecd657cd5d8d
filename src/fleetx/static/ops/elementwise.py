"""Arithmetic of two tensors with Fluid's `axis` broadcasting, and of a tensor and numbers.

Y's dimensions are aligned with X's from `axis` on; -1 aligns the last ones, as NumPy does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fleetx import torch_private
from fleetx.kernels.gradients import clip_by_norm, clip_factor
from fleetx.static.graph.dtypes import to_torch
from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import (
    broadcast,
    broadcast_shape,
    checked,
    input_var,
    refuse,
    same_as,
    set_output,
)


def _lay(small: Tensor, dims: int, axis: int) -> Tensor:
    """Return the smaller operand with 1s after its dimensions; plain broadcasting does the rest."""
    tail = dims - axis - small.dim()
    if tail > 0:
        return small.reshape(small.shape + (1,) * tail)
    return small.reshape(small.shape[:tail]) if tail < 0 else small


def align(x: Tensor, y: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Reshape the operand with fewer dimensions so that it broadcasts from `axis` on."""
    if x.dim() >= y.dim():
        return x, _lay(y, x.dim(), axis)
    return _lay(x, y.dim(), axis), y


def along_axis(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return a function of two tensors with Fluid's broadcasting, for an op with `axis`."""

    def compute(x: Tensor, y: Tensor, *, axis: int) -> Tensor:
        if axis != -1:
            x, y = align(x, y, axis)
        return function(x, y)

    return compute


def _binary(name: str, function: Callable[[Tensor, Tensor], Tensor], **options: Any) -> None:
    attrs = {"axis": -1, "x_data_format": "", "y_data_format": ""}
    op(name, inputs="X Y", attrs=attrs, infer=broadcast(), **options)(along_axis(function))


def _divide(x: Tensor, y: Tensor) -> Tensor:
    # Whole numbers stay whole, as in C.
    if x.is_floating_point() or y.is_floating_point():
        return torch.div(x, y)
    return torch.div(x, y, rounding_mode="trunc")


def _maximum(x: Tensor, y: Tensor) -> Tensor:
    # Where both are equal the gradient goes to Y alone; torch.maximum would share it out.
    return torch.where(x > y, x, y) if x.requires_grad or y.requires_grad else torch.maximum(x, y)


def _minimum(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x < y, x, y) if x.requires_grad or y.requires_grad else torch.minimum(x, y)


def _adds_up(op: Any) -> bool:
    """Return whether an op adds its X to a persistable Y of the same shape."""
    if op.output("Out") != op.input("Y"):
        return False
    x, y = (op.block.find_var(op.input(slot)[0]) for slot in ("X", "Y"))
    known = x is not None and y is not None
    return known and y.persistable and x.shape == y.shape and x.dtype == y.dtype


def _add_up(rows: Sequence[tuple[Tensor, Tensor]], *, axis: int) -> list[Tensor]:
    """Add to sums in place."""
    sums = [y for _, y in rows]
    torch_private.foreach_add_(sums, [x for x, _ in rows])
    return sums


_binary("elementwise_add", torch.add, fused=_add_up, fused_if=_adds_up)
_binary("elementwise_sub", torch.sub)
_binary("elementwise_mul", torch.mul)
_binary("elementwise_div", _divide)
_binary("elementwise_max", _maximum)
_binary("elementwise_min", _minimum)
_binary("elementwise_pow", torch.pow)
_binary("elementwise_mod", torch.remainder, grad=None)
_binary("elementwise_floordiv", torch.floor_divide, grad=None)
_binary("elementwise_fmax", torch.fmax)
_binary("elementwise_fmin", torch.fmin)


op("minus", inputs="X Y", infer=broadcast())(lambda x, y: x - y)


@op("scale", inputs="X ScaleTensor?!", infer=same_as())
def scale(
    x: Tensor,
    factor: Tensor | None,
    *,
    scale: float = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
) -> Tensor:
    """X * scale + bias, or (X + bias) * scale; whole numbers stay whole."""
    by: Any = scale if factor is None else factor.to(x.dtype)
    if not x.is_floating_point():
        by = int(by) if factor is None else by
        bias = int(bias)
    if not bias:
        return x * by
    return x * by + bias if bias_after_scale else (x + bias) * by


def _one_element(op: Any, block: Any) -> str | None:
    x = input_var(op, block, "X")
    known = x is not None and -1 not in x.shape
    return "X must have one element." if known and math.prod(x.shape) != 1 else None


@op("increment", infer=checked(_one_element, same_as()), grad=None)
def increment(x: Tensor, *, step: float = 1.0) -> Tensor:
    """X + step, in X's type."""
    return x + (step if x.is_floating_point() else int(step))


@op("cast", attrs={"in_dtype": 5}, infer=None)
def cast(x: Tensor, *, out_dtype: int = 5) -> Tensor:
    """X with another element type."""
    return x.to(to_torch(out_dtype))


def _sum_rule(op: Any, block: Any) -> None:
    found = [input_var(op, block, "X", i) for i in range(len(op.input("X")))]
    known = [v for v in found if v is not None]
    if not known:
        return
    shape = known[0].shape
    for var in known[1:]:
        merged = broadcast_shape(shape, var.shape) if len(shape) == len(var.shape) else None
        if merged is None:
            raise refuse(op, block, "all summands must have the same shape.")
        shape = merged
    set_output(op, block, "Out", shape, known[0].dtype)


@op("sum", inputs="X*", infer=_sum_rule)
def sum_(xs: list[Tensor]) -> Tensor:
    """The sum of equal tensors."""
    if len(xs) == 1:
        return xs[0].clone()
    return functools.reduce(torch.add, xs)


_LARGEST = {
    dtype: torch.finfo(dtype).max
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}


def _ordered_limits(op: Any, block: Any) -> str | None:
    low, high = op.attrs["min"], op.attrs["max"]
    given = op.input("Min") or op.input("Max")
    wrong = low > high and not given
    return f"max is {high}, but must not be less than min, which is {low}." if wrong else None


@op("clip", inputs="X Min?! Max?!", infer=checked(_ordered_limits, same_as()))
def clip(
    x: Tensor, low: Tensor | None, high: Tensor | None, *, min: float = 0.0, max: float = 0.0
) -> Tensor:
    """X limited to min..max; at the limits themselves no gradient passes."""
    if low is not None:
        min = low.item()
    if high is not None:
        max = high.item()
    if not x.is_floating_point():
        return torch.clamp(x, int(min), int(max))
    # a limit that was left out is the greatest double, too much for a narrower type
    top = _LARGEST[x.dtype]
    return torch_private.hardtanh(x, -top if min < -top else min, top if max > top else max)


def _positive_norm(op: Any, block: Any) -> str | None:
    norm = op.attrs["max_norm"]
    return f"max_norm is {norm}, but must be positive." if norm <= 0 else None


_NORM_RULE = checked(_positive_norm, same_as())
op("clip_by_norm", attrs={"max_norm": 1.0}, infer=_NORM_RULE)(clip_by_norm)


@op("clip_factor", inputs="X*", grad=None)
def _clip_factor(grads: list[Tensor], *, max_norm: float = 1.0) -> Tensor:
    """Return the factor that brings the norm of all gradients together down to `max_norm`."""
    return clip_factor(grads, max_norm)[0].reshape(1)


op("lerp", inputs="X Y Weight")(lambda x, y, weight: torch.lerp(x, y, weight))
op("atan2", inputs="X1 X2")(lambda x1, x2: torch.atan2(x1, x2))
op("elementwise_heaviside", inputs="X Y", attrs={"axis": -1}, grad=None)(
    lambda x, y: torch.heaviside(x, y)
)
