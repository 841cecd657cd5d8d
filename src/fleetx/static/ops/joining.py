"""Ops that join tensors or take them apart: concat, split, stack, unstack, pad, crop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fleetx.static.graph.op_registry import Attr, op
from fleetx.static.ops.windows import in_either_layout
from fleetx.static.shapes.infer_rules import (
    checked,
    input_var,
    known,
    needs_rank,
    refuse,
    set_output,
)
from fleetx.static.shapes.lod import LoD


def _concat_rule(op: Any, block: Any) -> None:
    found = [input_var(op, block, "X", i) for i in range(len(op.input("X")))]
    if not found or any(v is None for v in found):
        return
    first, count = found[0], len(found[0].shape)
    if op.input("AxisTensor"):
        set_output(op, block, "Out", (-1,) * count, first.dtype)
        return
    axis = op.attrs["axis"]
    if not -count <= axis < count:
        raise refuse(op, block, f"axis {axis} is not within their {count} dimensions.")
    axis %= count
    shape = list(first.shape)
    for var in found[1:]:
        if len(var.shape) != count:
            raise refuse(op, block, "they have different numbers of dimensions.")
        for i, d in enumerate(var.shape):
            if i == axis:
                shape[i] = -1 if d < 0 or shape[i] < 0 else shape[i] + d
            elif d >= 0 and shape[i] >= 0 and d != shape[i]:
                raise refuse(op, block, f"they differ in dimension {i}, not only in axis {axis}.")
            else:
                shape[i] = max(shape[i], d)
    set_output(op, block, "Out", shape, first.dtype, first.lod_level)


def _concat_lod(op: Any, lods: dict[str, LoD]) -> LoD | None:
    """Sequences follow each other along the first axis; along others the first input's stay."""
    given = [lods.get(name) for name in op.input("X")]
    first, others = given[0], given[1:]
    if op.attrs["axis"] != 0 or not first:
        return first
    joined = [list(level) for level in first]
    for other in others:
        if other is None or len(other) != len(first):
            return None
        for level, more in zip(joined, other, strict=True):
            level += [offset + level[-1] for offset in more[1:]]
    return joined


@op("concat", inputs="X* AxisTensor?!", infer=_concat_rule, lod=_concat_lod)
def concat(xs: list[Tensor], axis_tensor: Tensor | None, *, axis: int = 0) -> Tensor:
    """Tensors one after the other along an axis."""
    return torch.cat(xs, axis if axis_tensor is None else int(axis_tensor.item()))


@known("X")
def _split_rule(op: Any, block: Any, x: Any) -> None:
    names, attrs = op.output("Out"), op.attrs
    if op.input("AxisTensor"):
        set_output(op, block, "Out", (-1,) * len(x.shape), x.dtype)
        return
    axis = attrs["axis"] % len(x.shape)
    size, sections = x.shape[axis], list(attrs["sections"])
    if attrs["num"] > 0:
        if size >= 0 and size % attrs["num"]:
            raise refuse(op, block, f"{size} is not a multiple of {attrs['num']} parts.")
        sections = [size // attrs["num"] if size >= 0 else -1] * attrs["num"]
    elif -1 in sections and size >= 0 and not op.input("SectionsTensorList"):
        sections[sections.index(-1)] = size - sum(s for s in sections if s >= 0)
    elif size >= 0 and -1 not in sections and sum(sections) != size:
        raise refuse(op, block, f"sections {sections} do not sum to {size} (axis {axis}).")
    for name, part in zip(names, sections, strict=False):
        var = block.find_var(name)
        if var is not None:
            var.set_inferred((*x.shape[:axis], part, *x.shape[axis + 1 :]), x.dtype)


@op("split", inputs="X AxisTensor?! SectionsTensorList*?!", outputs="Out*", infer=_split_rule)
def split(
    x: Tensor,
    axis_tensor: Tensor | None,
    sections_list: list[Tensor],
    *,
    sections: list[int] = [],
    num: int = 0,
    axis: int = 0,
) -> list[Tensor]:
    """Parts of X along an axis: `num` equal ones, or of the sizes `sections`."""
    if axis_tensor is not None:
        axis = int(axis_tensor.item())
    if num > 0:
        return list(x.split(x.shape[axis] // num, axis))
    sizes = [int(t.item()) for t in sections_list] if sections_list else list(sections)
    if -1 in sizes:
        sizes[sizes.index(-1)] = x.shape[axis] - sum(s for s in sizes if s >= 0)
    return list(x.split(sizes, axis))


op("stack", inputs="X*", outputs="Y")(lambda xs, *, axis=0: torch.stack(xs, axis))
op("unstack", outputs="Y*", attrs={"num": 0})(lambda x, *, axis=0: list(x.unbind(axis)))
op("unbind", outputs="Out*")(lambda x, *, axis=0: list(x.unbind(axis)))


@op("partial_concat", inputs="X*")
def partial_concat(xs: list[Tensor], *, start_index: int = 0, length: int = -1) -> Tensor:
    """The same columns of several matrices, side by side."""
    end = None if length < 0 else start_index % xs[0].shape[1] + length
    return torch.cat([x[:, start_index:end] for x in xs], 1)


@op("partial_sum", inputs="X*")
def partial_sum(xs: list[Tensor], *, start_index: int = 0, length: int = -1) -> Tensor:
    """The sum of the same columns of several matrices."""
    end = None if length < 0 else start_index % xs[0].shape[1] + length
    return torch.stack([x[:, start_index:end] for x in xs]).sum(0)


# -- padding -------------------------------------------------------------------------------------
def _two_paddings_each(op: Any, block: Any) -> str | None:
    x, paddings = input_var(op, block, "X"), op.attrs["paddings"]
    wrong = x is not None and len(paddings) != 2 * len(x.shape)
    return f"paddings {list(paddings)} must have two numbers per dimension." if wrong else None


@op("pad", infer=checked(_two_paddings_each))
def pad(x: Tensor, *, paddings: list[int] = [], pad_value: float = 0.0) -> Tensor:
    """X with `paddings` elements before and after each dimension, first dimension first."""
    pairs = [paddings[i : i + 2] for i in range(0, len(paddings), 2)]
    return F.pad(x, [n for pair in reversed(pairs) for n in pair], value=pad_value)


def _pad_spatial(x: Tensor, amounts: list[int], mode: str, value: float) -> Tensor:
    if mode == "constant":
        return F.pad(x, amounts, value=value)
    return F.pad(x, amounts, {"edge": "replicate"}.get(mode, mode))


@known("X")
def _unknown_size(op: Any, block: Any, x: Any) -> None:
    last = op.attrs["data_format"].endswith("C")
    shape = [d if i in (0, len(x.shape) - 1 if last else 1) else -1 for i, d in enumerate(x.shape)]
    set_output(op, block, "Out", shape, x.dtype)


def _pad_rule(op: Any, block: Any) -> None:
    from fleetx.static.shapes.infer_shape import infer_by_running

    if op.input("Paddings"):
        _unknown_size(op, block)
    else:
        infer_by_running(op, block)


@op("pad2d", inputs="X Paddings?!", infer=checked(needs_rank(4), _pad_rule))
def pad2d(
    x: Tensor,
    sizes: Tensor | None,
    *,
    paddings: list[int] = [0, 0, 0, 0],
    pad_value: float = 0.0,
    mode: str = "constant",
    data_format: str = "NCHW",
) -> Tensor:
    """Images padded by [top, bottom, left, right]."""
    top, bottom, left, right = paddings if sizes is None else sizes.tolist()
    amounts = [left, right, top, bottom]
    return in_either_layout(_pad_spatial, x, data_format, amounts, mode, pad_value)


@op("pad3d", inputs="X Paddings?!", attrs={"paddings": Attr("INTS", [0] * 6)}, infer=_pad_rule)
def pad3d(
    x: Tensor,
    sizes: Tensor | None,
    *,
    paddings: list[int],
    mode: str = "constant",
    value: float = 0.0,
    data_format: str = "NCDHW",
) -> Tensor:
    """Volumes padded by [left, right, top, bottom, front, back]."""
    amounts = list(paddings) if sizes is None else sizes.tolist()
    return in_either_layout(_pad_spatial, x, data_format, amounts, mode, value)


@op("pad_constant_like", inputs="X! Y")
def pad_constant_like(x: Tensor, y: Tensor, *, pad_value: float = 0.0) -> Tensor:
    """Y padded at its ends to the shape of X."""
    amounts: list[int] = []
    for have, want in zip(reversed(y.shape), reversed(x.shape), strict=True):
        amounts += [0, want - have]
    return F.pad(y, amounts, value=pad_value)


# -- cropping ------------------------------------------------------------------------------------
def _crop(x: Tensor, shape: list[int], offsets: list[int]) -> Tensor:
    starts = offsets or [0] * x.dim()
    for i, (start, size) in enumerate(zip(starts, shape, strict=True)):
        x = x.narrow(i, start, x.shape[i] - start if size == -1 else size)
    return x


def _crop_rule(op: Any, block: Any) -> None:
    x, y = input_var(op, block, "X"), input_var(op, block, "Y")
    if x is None:
        return
    shape = list(op.attrs["shape"]) if y is None else list(y.shape)
    offsets = op.attrs["offsets"]
    fixed = not op.input("Offsets") and not op.input("OffsetsTensor") and len(offsets) == len(shape)
    for i, d in enumerate(shape):
        if d == -1 and y is None and fixed and x.shape[i] >= 0:
            shape[i] = x.shape[i] - offsets[i]
    set_output(op, block, "Out", shape or [-1] * len(x.shape), x.dtype)


@op("crop", inputs="X Y?! Offsets?!", infer=_crop_rule)
def crop(
    x: Tensor,
    y: Tensor | None,
    offsets_tensor: Tensor | None,
    *,
    offsets: list[int] = [],
    shape: list[int] = [],
) -> Tensor:
    """The part of X that begins at `offsets`, in a given shape or that of Y."""
    starts = offsets if offsets_tensor is None else offsets_tensor.tolist()
    return _crop(x, list(shape) if y is None else list(y.shape), starts)


@op(
    "crop_tensor",
    inputs="X Shape?! Offsets?! ShapeTensor*?! OffsetsTensor*?!",
    infer=_crop_rule,
)
def crop_tensor(
    x: Tensor,
    shape_whole: Tensor | None,
    offsets_whole: Tensor | None,
    shape_parts: list[Tensor],
    offsets_parts: list[Tensor],
    *,
    offsets: list[int] = [],
    shape: list[int] = [],
) -> Tensor:
    """The part of X that begins at `offsets`; shape and offsets may be tensors."""
    from fleetx.static.ops.creation import resolve_shape

    starts = resolve_shape(list(offsets), offsets_whole, offsets_parts)
    return _crop(x, resolve_shape(list(shape), shape_whole, shape_parts), starts)
