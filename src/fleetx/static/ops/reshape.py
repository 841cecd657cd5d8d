"""Ops that lay elements out differently: reshape, transpose, squeeze, flatten, expand, flip.

Some have a second output, XShape: an empty tensor that carries the input's shape in the program.
Nothing reads it when a program runs, so it is only made for shape inference.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import Long, op
from fleetx.static.ops.creation import resolve_shape
from fleetx.static.shapes.infer_rules import (
    by_running_unless,
    input_var,
    known,
    known_product,
    refuse,
    same_as,
    set_output,
)


def x_shape(x: Tensor) -> Tensor | None:
    """Return the XShape output: only its dimensions matter, and only while a program is built."""
    return x.new_empty((0, *x.shape)) if x.is_meta else None


def _in_two_generations(type: str, **options: Any) -> Callable[[Callable[..., Tensor]], Any]:
    """Register the decorated function as the op `type`, and as its successor with XShape.

    The successor of `reshape` is `reshape2`.
    """

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(function)
        def with_x_shape(*args: Any, **attrs: Any) -> tuple[Tensor, None]:
            return function(*args, **attrs), None

        op(f"{type}2", outputs="Out XShape?", **options)(with_x_shape)
        return op(type, **options)(function)

    return register


def _set_x_shape(op: Any, block: Any, x: Any) -> None:
    set_output(op, block, "XShape", (0, *x.shape), x.dtype)


# -- reshape -------------------------------------------------------------------------------------
@known("X")
def _reshape_rule(op: Any, block: Any, x: Any) -> None:
    _set_x_shape(op, block, x)
    if op.input("ShapeTensor"):
        shape = op.attrs["shape"] or [-1] * len(op.input("ShapeTensor"))
        set_output(op, block, "Out", [d if d > 0 else -1 for d in shape], x.dtype)
        return
    whole = input_var(op, block, "Shape")
    if whole is not None and not (op.attrs["shape"] and all(d > 0 for d in op.attrs["shape"])):
        set_output(op, block, "Out", (-1,) * whole.shape[0], x.dtype)
        return
    shape = list(op.attrs["shape"])
    for i, d in enumerate(shape):
        if d == 0:
            if i >= len(x.shape):
                raise refuse(op, block, f"shape[{i}] is 0, but X has no dimension {i} to copy.")
            shape[i] = x.shape[i]
    if min(x.shape, default=0) >= 0:
        _fill_in(op, block, x, shape)
    set_output(op, block, "Out", shape, x.dtype)


def _fill_in(op: Any, block: Any, x: Any, shape: list[int]) -> None:
    """Replace -1 by the size that is left over, or refuse a shape of another size."""
    size, known = math.prod(x.shape), math.prod(d for d in shape if d >= 0)
    if -1 in shape:
        if known == 0 or size % known:
            raise refuse(op, block, f"{size} elements cannot be reshaped to {tuple(shape)}.")
        shape[shape.index(-1)] = size // known
    elif known != size:
        raise refuse(op, block, f"{size} elements cannot be reshaped to {tuple(shape)}.")


@_in_two_generations(
    "reshape",
    inputs="X Shape?! ShapeTensor*?!",
    infer=_reshape_rule,
)
def reshape(
    x: Tensor, whole: Tensor | None, parts: list[Tensor], *, shape: list[int] = []
) -> Tensor:
    """X in another shape: 0 copies a dimension, -1 takes what is left."""
    if whole is not None or parts:
        shape = resolve_shape(shape, None if parts else whole, parts)
    if 0 in shape:
        if -1 in shape:  # known from the other dimensions, even if a copied one is empty
            copied = {i for i, d in enumerate(shape) if d == 0}
            left = math.prod(d for i, d in enumerate(x.shape) if i not in copied)
            size = left // max(1, math.prod(d for d in shape if d > 0))
            shape = [size if d == -1 else d for d in shape]
        shape = [x.shape[i] if d == 0 else d for i, d in enumerate(shape)]
    return x.reshape(shape)


# -- transpose -----------------------------------------------------------------------------------
@known("X")
def _transpose_rule(op: Any, block: Any, x: Any) -> None:
    axis = op.attrs["axis"]
    count = len(x.shape)
    if sorted(a % count for a in axis) != list(range(count)):
        raise refuse(op, block, f"perm {list(axis)} is not an order of its {count} dimensions.")
    set_output(op, block, "Out", [x.shape[a] for a in axis], x.dtype)
    _set_x_shape(op, block, x)


@_in_two_generations("transpose", attrs={"data_format": "AnyLayout"}, infer=_transpose_rule)
def transpose(x: Tensor, *, axis: list[int] = []) -> Tensor:
    """X with its dimensions in another order."""
    return x.permute(axis)


# -- squeeze and unsqueeze -----------------------------------------------------------------------
def _squeezed(shape: tuple[int, ...], axes: list[int]) -> list[int]:
    if axes:
        chosen = {a % len(shape) for a in axes if shape[a] == 1}
    else:
        chosen = {i for i, d in enumerate(shape) if d == 1}
    return [d for i, d in enumerate(shape) if i not in chosen] or [1]


@known("X")
def _squeeze_rule(op: Any, block: Any, x: Any) -> None:
    axes, count = op.attrs["axes"], len(x.shape)
    if any(not -count <= a < count for a in axes):
        raise refuse(op, block, f"axes {list(axes)} are not within its {count} dimensions.")
    set_output(op, block, "Out", _squeezed(x.shape, axes), x.dtype)
    _set_x_shape(op, block, x)


@_in_two_generations("squeeze", infer=_squeeze_rule)
def squeeze(x: Tensor, *, axes: list[int] = []) -> Tensor:
    """X without the given dimensions of size 1, or without all of them."""
    out = x.squeeze(tuple(axes)) if axes else x.squeeze()
    return out if out.dim() else out.reshape(1)


@known("X")
def _unsqueeze_rule(op: Any, block: Any, x: Any) -> None:
    _set_x_shape(op, block, x)
    if op.input("AxesTensor") or op.input("AxesTensorList"):
        whole = input_var(op, block, "AxesTensor")
        count = len(op.input("AxesTensorList")) if whole is None else whole.shape[0]
        set_output(op, block, "Out", (-1,) * (len(x.shape) + count), x.dtype)
        return
    shape = list(x.shape)
    for axis in op.attrs["axes"]:
        if not -len(shape) - 1 <= axis <= len(shape):
            raise refuse(
                op, block, f"axis {axis} is not within its {len(shape) + 1} new dimensions."
            )
        shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 1)
    set_output(op, block, "Out", shape, x.dtype)


@_in_two_generations(
    "unsqueeze",
    inputs="X AxesTensor?! AxesTensorList*?!",
    infer=_unsqueeze_rule,
)
def unsqueeze(
    x: Tensor, whole: Tensor | None, parts: list[Tensor], *, axes: list[int] = []
) -> Tensor:
    """X with new dimensions of size 1, inserted one after the other."""
    for axis in resolve_shape(axes, whole, parts):
        x = x.unsqueeze(axis)
    return x


# -- flatten -------------------------------------------------------------------------------------
@known("X")
def _flatten_rule(op: Any, block: Any, x: Any) -> None:
    axis = op.attrs["axis"]
    shape = (known_product(x.shape[:axis]), known_product(x.shape[axis:]))
    set_output(op, block, "Out", shape, x.dtype)
    _set_x_shape(op, block, x)


@_in_two_generations("flatten", infer=_flatten_rule)
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    """X as a matrix: dimensions before `axis` are rows."""
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@op("flatten_contiguous_range", outputs="Out XShape?")
def flatten_contiguous_range(
    x: Tensor, *, start_axis: int = 1, stop_axis: int = 1
) -> tuple[Tensor, Tensor | None]:
    """X with neighbouring dimensions merged."""
    return x.flatten(start_axis, stop_axis), x_shape(x)


# -- repetition ----------------------------------------------------------------------------------
@known("X")
def _expand_rule(op: Any, block: Any, x: Any) -> None:
    times = op.attrs.get("expand_times") or [-1] * len(x.shape)
    shape = [-1 if t < 0 or d < 0 else t * d for d, t in zip(x.shape, times, strict=False)]
    set_output(op, block, "Out", shape, x.dtype)


@op(
    "expand",
    inputs="X ExpandTimes?! expand_times_tensor*?!",
    infer=by_running_unless("ExpandTimes", "expand_times_tensor", fallback=_expand_rule),
)
def expand(
    x: Tensor, whole: Tensor | None, parts: list[Tensor], *, expand_times: list[int] = []
) -> Tensor:
    """X repeated along its dimensions."""
    return x.repeat(resolve_shape(expand_times, whole, parts))


@op("expand_as", inputs="X target_tensor!")
def expand_as(x: Tensor, target: Tensor) -> Tensor:
    """X repeated to the size of another tensor."""
    return x.repeat([t // d for d, t in zip(x.shape, target.shape, strict=True)])


def _tile_rule(op: Any, block: Any) -> None:
    x, whole = input_var(op, block, "X"), input_var(op, block, "RepeatTimes")
    if x is not None:
        count = len(op.input("repeat_times_tensor")) if whole is None else whole.shape[0]
        set_output(op, block, "Out", (-1,) * max(len(x.shape), count), x.dtype)


@op(
    "tile",
    inputs="X RepeatTimes?! repeat_times_tensor*?!",
    infer=by_running_unless("RepeatTimes", "repeat_times_tensor", fallback=_tile_rule),
)
def tile(
    x: Tensor, whole: Tensor | None, parts: list[Tensor], *, repeat_times: list[int] = []
) -> Tensor:
    """X repeated, with NumPy's rules for fewer or more dimensions."""
    return torch.tile(x, tuple(resolve_shape(repeat_times, whole, parts)))


@known("X")
def _expand_v2_rule(op: Any, block: Any, x: Any) -> None:
    whole = input_var(op, block, "Shape")
    shape = list(op.attrs["shape"])
    if whole is not None:
        shape = [-1] * whole.shape[0]
    elif op.input("expand_shapes_tensor"):
        shape = shape or [-1] * len(op.input("expand_shapes_tensor"))
    else:
        offset = len(shape) - len(x.shape)
        for i, d in enumerate(x.shape):
            if shape[i + offset] == -1:
                shape[i + offset] = d
            elif d > 1 and shape[i + offset] != d:
                raise refuse(op, block, f"it cannot be expanded to {tuple(shape)}.")
    set_output(op, block, "Out", shape, x.dtype)


@op("expand_v2", inputs="X Shape?! expand_shapes_tensor*?!", infer=_expand_v2_rule)
def expand_v2(
    x: Tensor, whole: Tensor | None, parts: list[Tensor], *, shape: list[int] = []
) -> Tensor:
    """X broadcast to a shape; -1 keeps a dimension."""
    return x.expand(resolve_shape(shape, whole, parts))


@op("expand_as_v2", inputs="X Y?!")
def expand_as_v2(x: Tensor, y: Tensor | None, *, target_shape: list[int] = []) -> Tensor:
    """X broadcast to the shape of another tensor."""
    return x.expand(target_shape if y is None else y.shape)


op("broadcast_tensors", inputs="X*", outputs="Out*")(lambda xs: list(torch.broadcast_tensors(*xs)))


# -- order ---------------------------------------------------------------------------------------
@op("reverse", infer=same_as())
def reverse(x: Tensor, *, axis: list[int] = [0]) -> Tensor:
    """X reversed along dimensions; one that is named twice is reversed once."""
    return x.flip(tuple({a % x.dim() if -x.dim() <= a < x.dim() else a for a in axis}))


@op("flip", infer=same_as())
def flip(x: Tensor, *, axis: list[int] = [], dims: list[int] | None = None) -> Tensor:
    """X reversed along dimensions; older programs name them `dims`."""
    return x.flip(tuple(dims if dims is not None else axis))


@op("roll", inputs="X ShiftsTensor?!", infer=same_as())
def roll(
    x: Tensor,
    shifts_tensor: Tensor | None,
    *,
    shifts: list[Long] = [],
    axis: list[Long] = [],
    dims: list[Long] = [],
) -> Tensor:
    """X rolled along dimensions; older programs name them `dims`."""
    by = resolve_shape(shifts, shifts_tensor, None)
    along = list(dims or axis)
    return torch.roll(x, by, along) if along else torch.roll(x, by)
