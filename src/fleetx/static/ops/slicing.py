"""Ops that read or write parts of a tensor: slices, gathering and scattering by index."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.dtypes import to_torch
from fleetx.static.graph.op_registry import Attr, Long, op
from fleetx.static.ops.creation import resolve_shape
from fleetx.static.shapes.infer_rules import input_var, known, refuse, same_as, set_output

_INF = 2**31 - 1


# -- slices --------------------------------------------------------------------------------------
def _length(size: int, start: int, end: int, step: int = 1) -> int:
    """Return how many elements start:end:step takes from a dimension (-1 where it is unknown)."""
    if size < 0:
        if step == 1 and 0 <= start <= end < _INF:
            return -1
        if step == 1 and start < 0 and (end < 0 or end >= _INF):
            return (end if end < 0 else 0) - start
        return -1
    return len(_range(size, start, end, step))


def _range(size: int, start: int, end: int, step: int) -> range:
    """Return the positions that start:end:step takes from a dimension.

    Going backwards, an end of -1 means "before the first", unlike in NumPy, as does -size-1.
    """
    stop = None if step < 0 and (end == -1 or end < -size) else end
    return range(*slice(start, stop, step).indices(size))


@known("Input")
def _slice_rule(op: Any, block: Any, x: Any) -> None:
    attrs = op.attrs
    shape, flags = list(x.shape), attrs.get("infer_flags") or []
    steps = attrs.get("strides") or [1] * len(attrs["axes"])
    dynamic = any(op.input(f"{s}Tensor") for s in ("Starts", "Ends", "Strides"))
    lists = any(op.input(f"{s}TensorList") for s in ("Starts", "Ends", "Strides"))
    for i, axis in enumerate(attrs["axes"]):
        unknown = dynamic or (lists and (not flags or flags[i] == -1))
        if unknown or i >= len(attrs["starts"]) or i >= len(attrs["ends"]):
            shape[axis] = -1
        else:
            shape[axis] = _length(x.shape[axis], attrs["starts"][i], attrs["ends"][i], steps[i])
    drop = {a % len(shape) for a in attrs.get("decrease_axis") or []}
    shape = [d for i, d in enumerate(shape) if i not in drop]
    set_output(op, block, "Out", shape or [1], x.dtype)


def _end(start: int, end: int, single: bool) -> int:
    """Return where a range ends: a single element from the end, [-1:0], is the last one."""
    return _INF if single and start == -1 and end == 0 else end


def _drop(out: Tensor, axes: list[int]) -> Tensor:
    if axes:
        out = out.squeeze(tuple(axes))
        if out.dim() == 0:
            return out.reshape(1)
    return out


@op(
    "slice",
    inputs="Input StartsTensor?! EndsTensor?! StartsTensorList*?! EndsTensorList*?!",
    attrs={"infer_flags": Attr("INTS", [])},
    infer=_slice_rule,
)
def slice_(
    x: Any,
    starts_whole: Tensor | None,
    ends_whole: Tensor | None,
    starts_parts: list[Tensor],
    ends_parts: list[Tensor],
    *,
    axes: list[int] = [],
    starts: list[int] = [],
    ends: list[int] = [],
    decrease_axis: list[int] = [],
) -> Any:
    """starts:ends of some dimensions; those in `decrease_axis`, of size 1, go away."""
    starts = resolve_shape(starts, starts_whole, starts_parts)
    ends = resolve_shape(ends, ends_whole, ends_parts)
    if isinstance(x, list):  # an array of tensors
        return x[starts[0]] if decrease_axis else x[starts[0] : ends[0]]
    index: list[Any] = [slice(None)] * x.dim()
    for axis, start, end in zip(axes, starts, ends, strict=True):
        index[axis] = slice(start, _end(start, end, axis in decrease_axis))
    return _drop(x[tuple(index)], decrease_axis)


@op(
    "strided_slice",
    inputs="Input StartsTensor?! EndsTensor?! StridesTensor?! StartsTensorList*?! "
    "EndsTensorList*?! StridesTensorList*?!",
    attrs={"infer_flags": Attr("INTS", [])},
    infer=_slice_rule,
)
def strided_slice(
    x: Tensor,
    starts_whole: Tensor | None,
    ends_whole: Tensor | None,
    strides_whole: Tensor | None,
    starts_parts: list[Tensor],
    ends_parts: list[Tensor],
    strides_parts: list[Tensor],
    *,
    axes: list[int] = [],
    starts: list[int] = [],
    ends: list[int] = [],
    strides: list[int] = [],
    decrease_axis: list[int] = [],
) -> Tensor:
    """starts:ends:strides of some dimensions; a negative stride goes backwards."""
    starts = resolve_shape(starts, starts_whole, starts_parts)
    ends = resolve_shape(ends, ends_whole, ends_parts)
    strides = resolve_shape(strides, strides_whole, strides_parts)
    for axis, start, end, step in zip(axes, starts, ends, strides, strict=True):
        x = take_range(x, axis, start, _end(start, end, axis in decrease_axis), step)
    return _drop(x, decrease_axis)


def take_range(x: Tensor, axis: int, start: int, end: int, step: int) -> Tensor:
    """Return x[start:end:step] along one axis, for negative steps too."""
    taken = _range(x.shape[axis], start, end, step)
    if step > 0:
        index: list[Any] = [slice(None)] * x.dim()
        index[axis] = slice(taken.start, taken.stop, step)
        return x[tuple(index)]
    return x.index_select(axis, torch.tensor(taken, dtype=torch.int64, device=x.device))


@op(
    "set_value",
    inputs="Input ValueTensor? StartsTensorList*?! EndsTensorList*?! StepsTensorList*?!",
    attrs={"none_axes": Attr("LONGS", [])},
    infer=same_as("Input"),
)
def set_value(
    x: Tensor,
    value: Tensor | None,
    starts_parts: list[Tensor],
    ends_parts: list[Tensor],
    steps_parts: list[Tensor],
    *,
    dtype: int = 5,
    axes: list[Long] = [],
    starts: list[Long] = [],
    ends: list[Long] = [],
    steps: list[Long] = [],
    decrease_axes: list[Long] = [],
    shape: list[Long] = [],
    fp32_values: list[float] = [],
    fp64_values: list[float] = [],
    int32_values: list[int] = [],
    int64_values: list[Long] = [],
    bool_values: list[int] = [],
    values: Any = None,
) -> Tensor:
    """Input with a slice replaced by a tensor or by the values kept in the program."""
    if value is None:
        kept = fp32_values or fp64_values or int64_values or int32_values or bool_values or values
        value = torch.tensor(kept, dtype=to_torch(dtype), device=x.device).reshape(shape)
    index: list[Any] = [slice(None)] * x.dim()
    for axis, start, end, step in zip(
        axes,
        resolve_shape(starts, None, starts_parts),
        resolve_shape(ends, None, ends_parts),
        resolve_shape(steps, None, steps_parts),
        strict=True,
    ):
        span = range(*slice(start, end, step).indices(x.shape[axis]))
        index[axis] = span[0] if axis in decrease_axes else slice(start, end, step)
        if step < 0:
            raise ValueError("set_value does not go backwards; give a positive step.")
    out = x.clone()
    out[tuple(index)] = value.to(x.dtype)
    return out


# -- gathering -----------------------------------------------------------------------------------
class _GatherRows(torch.autograd.Function):
    """Rows by position; of several uses of one row, the last one's gradient stays."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape = x.shape
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return grads[0].new_zeros(ctx.shape).index_copy_(0, index, grads[0]), None


# Newer programs do not know `overwrite` and add gradients up; the layer always sets it.
@op("gather", inputs="X Index! Axis?!", lod="none")
def gather(
    x: Tensor, index: Tensor, axis_tensor: Tensor | None, *, overwrite: bool = False, axis: int = 0
) -> Tensor:
    """The rows (or other slices) of X at the positions of Index."""
    if axis_tensor is not None and not axis_tensor.is_meta:
        axis = int(axis_tensor.item())
    if overwrite and axis == 0 and x.requires_grad:
        rows: Tensor = _GatherRows.apply(x, index.reshape(-1).long())
        return rows
    return x.index_select(axis, index.reshape(-1))


def _check_depth(x: Tensor, depth: int) -> None:
    if depth > x.dim():
        raise ValueError(
            f"Input(Index).shape[-1] should be no greater than Input(X).rank, but Index has "
            f"{depth} coordinates for the {x.dim()} dimensions of X."
        )


@op("gather_nd", inputs="X Index!")
def gather_nd(x: Tensor, index: Tensor) -> Tensor:
    """The elements or slices of X at the coordinates in Index's last dimension."""
    depth = index.shape[-1]
    _check_depth(x, depth)
    if depth == 0:
        return x.expand(index.shape[:-1] + x.shape)
    return x[tuple(index.long().unbind(-1))]


op("index_select", inputs="X Index!")(lambda x, index, *, dim=0: x.index_select(dim, index))
op("index_sample", inputs="X Index!")(lambda x, index: x.gather(1, index.long()))
op("take_along_axis", inputs="Input Index!", outputs="Result")(
    lambda x, index, *, Axis=0: torch.take_along_dim(x, index.long(), Axis)
)


@op("multiplex", inputs="Ids! X*")
def multiplex(ids: Tensor, xs: list[Tensor]) -> Tensor:
    """Row i of the Ids[i]-th tensor."""
    rows = torch.arange(xs[0].shape[0], device=ids.device)
    return torch.stack(xs)[ids.reshape(-1).long(), rows]


# -- scattering ----------------------------------------------------------------------------------
@op("scatter", inputs="X Ids! Updates", infer=same_as())
def scatter(x: Tensor, ids: Tensor, updates: Tensor, *, overwrite: bool = True) -> Tensor:
    """X with rows replaced by Updates, or by the sum of the updates of a row."""
    ids = ids.reshape(-1).long()
    if overwrite:
        return x.index_copy(0, ids, updates)
    return x.index_fill(0, ids, 0.0).index_add(0, ids, updates)


def _scatter_nd_rule(op: Any, block: Any) -> None:
    x, index = input_var(op, block, "X"), input_var(op, block, "Index")
    updates = input_var(op, block, "Updates")
    if x is not None and index is not None and updates is not None:
        depth = index.shape[-1]
        if depth > len(x.shape):
            raise refuse(
                op, block, "Input(Index).shape[-1] should be no greater than Input(X).rank."
            )
        if depth >= 0:
            wanted = (*index.shape[:-1], *x.shape[depth:])
            pairs = list(zip(wanted, updates.shape, strict=False))
            if len(wanted) != len(updates.shape) or any(
                a != b and min(a, b) >= 0 for a, b in pairs
            ):
                raise refuse(op, block, f"Updates has wrong shape: it must be {wanted}.")
    same_as()(op, block)


@op("scatter_nd_add", inputs="X Index! Updates", infer=_scatter_nd_rule)
def scatter_nd_add(x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    """X with Updates added at the coordinates in Index's last dimension."""
    if index.shape[-1] == 0:
        return x + updates.reshape(-1, *x.shape).sum(0)
    return x.index_put(tuple(index.long().unbind(-1)), updates, accumulate=True)


_REDUCE = {"add": "sum", "mul": "prod", "multiply": "prod", "amin": "amin", "amax": "amax"}


@op(
    "put_along_axis",
    inputs="Input Index! Value",
    outputs="Result",
    infer=same_as("Input", "Result"),
)
def put_along_axis(
    x: Tensor,
    index: Tensor,
    value: Tensor,
    *,
    Axis: int = 0,
    Reduce: str = "assign",
    Include_self: bool = True,
) -> Tensor:
    """Input with Value written, or combined, along an axis at the positions of Index."""
    index = index.long()
    value = value.to(x.dtype).expand(index.shape)
    if Reduce == "assign":
        return x.scatter(Axis, index, value)
    kind = _REDUCE.get(Reduce, Reduce)
    return x.scatter_reduce(Axis, index, value, kind, include_self=Include_self)


op("index_add", inputs="X Index! AddValue", infer=same_as())(
    lambda x, index, value, *, axis=0: x.index_add(axis, index, value)
)
