"""Ops that create tensors: constants, values, ranges, identity and diagonal matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.dtypes import to_torch
from fleetx.static.graph.op_registry import Attr, Long, detached_op, op
from fleetx.static.shapes.infer_rules import (
    checked,
    input_var,
    known,
    needs_rank,
    same_as,
    set_output,
    shape_from_attr,
    shapes,
)
from fleetx.static.shapes.lod import Lods

_SHAPE_SLOTS = "ShapeTensor? ShapeTensorList*?"


def resolve_shape(shape: list[int], whole: Tensor | None, parts: list[Tensor] | None) -> list[int]:
    """Return the shape a tensor holds, or a list of tensors, or else the attribute."""
    if whole is not None:
        return [int(d) for d in whole.tolist()]
    if parts:
        return [int(t.item()) for t in parts]
    return shape


def number(value: float, str_value: str, dtype: torch.dtype) -> Any:
    """Return the fill value, exact for whole numbers that a float attribute cannot hold."""
    if dtype == torch.bool:
        return bool(float(str_value or value))
    if dtype.is_floating_point:
        return float(str_value or value)
    if str_value:
        return int(str_value) if str_value.lstrip("+-").isdigit() else int(float(str_value))
    return int(value)


@op(
    "fill_constant",
    inputs=f"ValueTensor? {_SHAPE_SLOTS}",
    attrs={"force_cpu": False},
    grad=None,
    infer=shape_from_attr(),
)
def fill_constant(
    value_tensor: Tensor | None,
    shape_tensor: Tensor | None,
    shape_list: list[Tensor],
    *,
    dtype: int = 5,
    shape: list[Long] = [],
    value: float = 0.0,
    str_value: str = "",
    ctx: Any,
) -> Tensor:
    """A tensor of one value."""
    kind = to_torch(dtype)
    if shape_tensor is not None or shape_list:
        shape = resolve_shape(shape, shape_tensor, shape_list)
    if value_tensor is not None:
        return value_tensor.reshape(()).to(kind).expand(shape).clone()
    return torch.full(shape, number(value, str_value, kind), dtype=kind, device=ctx.device)


def batch_rule(op: Any, block: Any) -> None:
    """Rule of the `*_batch_size_like` ops: attribute `shape` with one dimension of Input."""
    ref = input_var(op, block, "Input")
    shape = list(op.attrs["shape"])
    if ref is not None:
        source = op.attrs["input_dim_idx"]
        # The first dimension of sequences counts steps; how many sequences there are is not known.
        counted = source == 0 and ref.lod_level > 0
        shape[op.attrs["output_dim_idx"]] = -1 if counted else ref.shape[source]
    set_output(op, block, "Out", shape, op.attrs["dtype"])


def like_batch(
    ref: Tensor, shape: list[int], from_dim: int, to_dim: int, lod: Lods | None
) -> list[int]:
    """Return `shape` with one dimension taken from `ref`; for sequences that is their number."""
    shape = list(shape)
    offsets = (lod or {}).get("Input", [None])[0]
    shape[to_dim] = len(offsets[-1]) - 1 if offsets and from_dim == 0 else ref.shape[from_dim]
    return shape


BATCH_ATTRS: dict[str, Any] = {
    "shape": Attr("INTS", []),
    "input_dim_idx": 0,
    "output_dim_idx": 0,
    "dtype": 5,
}


@detached_op(
    "fill_constant_batch_size_like",
    inputs="Input",
    attrs={**BATCH_ATTRS, "force_cpu": False},
    infer=batch_rule,
)
def fill_constant_batch_size_like(
    ref: Tensor,
    *,
    shape: list[int],
    input_dim_idx: int,
    output_dim_idx: int,
    dtype: int,
    value: float = 0.0,
    str_value: str = "",
    lod: Any,
) -> Tensor:
    """A tensor of one value with the batch size of another."""
    kind = to_torch(dtype)
    size = like_batch(ref, shape, input_dim_idx, output_dim_idx, lod)
    return torch.full(size, number(value, str_value, kind), dtype=kind, device=ref.device)


@known("X")
def _like_rule(op: Any, block: Any, ref: Any) -> None:
    dtype = op.attrs.get("dtype", -1)
    set_output(op, block, "Out", ref.shape, ref.dtype if dtype in (-1, None) else dtype)


@op("fill_any_like", grad=None, infer=_like_rule)
def fill_any_like(x: Tensor, *, value: float = 0.0, dtype: int = -1) -> Tensor:
    """One value in the shape of X."""
    kind = x.dtype if dtype in (-1, None) else to_torch(dtype)
    return torch.full_like(x, number(value, "", kind), dtype=kind)


op("fill_zeros_like", grad=None, infer=same_as())(lambda x: torch.zeros_like(x))
op("fill_zeros_like2", grad=None, infer=_like_rule)(
    lambda x, *, dtype=5: torch.zeros_like(x, dtype=to_torch(dtype))
)


@op("fill", inputs="", attrs={"force_cpu": False}, grad=None, infer=shape_from_attr())
def fill(*, value: list[float] = [], shape: list[int] = [], dtype: int = 5, ctx: Any) -> Tensor:
    """The given values in the given shape."""
    return torch.tensor(value, dtype=to_torch(dtype), device=ctx.device).reshape(shape)


@op(
    "assign_value",
    inputs="",
    attrs={"fp64_values": Attr("FLOAT64S", [])},
    grad=None,
    infer=shape_from_attr(),
)
def assign_value(
    *,
    shape: list[int] = [],
    dtype: int = 5,
    bool_values: list[int] = [],
    fp32_values: list[float] = [],
    int32_values: list[int] = [],
    int64_values: list[Long] = [],
    fp64_values: list[float],
    values: Any = None,
    ctx: Any,
) -> Tensor:
    """The values kept in the program; newer programs keep them all in `values`."""
    kept = (fp32_values, int64_values, int32_values, bool_values, fp64_values, values)
    found = next((v for v in kept if v), [])
    return torch.tensor(found, dtype=to_torch(dtype), device=ctx.device).reshape(shape)


@op("assign", inputs="X?", infer=same_as())
def assign(x: Any) -> Any:
    """A copy of X."""
    return list(x) if isinstance(x, list) else x.clone()  # an array of tensors is a list


op("share_data", infer=same_as())(lambda x: x)
op("memcpy", attrs={"dst_place_type": 0}, infer=same_as())(lambda x: x.clone())
detached_op("shape", inputs="Input")(
    lambda x: torch.tensor(x.shape, dtype=torch.int32, device=x.device)
)
detached_op("size", inputs="Input")(lambda x: torch.tensor([x.numel()], device=x.device))


@op("eye", inputs="", grad=None)
def eye(*, dtype: int = 5, num_rows: Long = 0, num_columns: Long = -1, ctx: Any) -> Tensor:
    """The identity matrix."""
    columns = num_rows if num_columns < 0 else num_columns
    return torch.eye(num_rows, columns, dtype=to_torch(dtype), device=ctx.device)


_unknown_length = shapes("Start", lambda op, start: {"Out": ((-1,), start.dtype)})


@detached_op("range", inputs="Start End Step", infer=_unknown_length)
def range_(start: Tensor, end: Tensor, step: Tensor) -> Tensor:
    """Start, start + step, ... below end."""
    if start.dtype.is_floating_point:
        # Counted in the tensors' own precision, as Paddle does: 0 to 0.6 by 0.1 are six values.
        count = max(0, int(torch.ceil((end - start) / step).item()))
        return start + step * torch.arange(count, dtype=start.dtype, device=start.device)
    values = (start.item(), end.item(), step.item())
    return torch.arange(*values, dtype=start.dtype, device=start.device)


@detached_op("linspace", inputs="Start Stop Num", infer=_unknown_length)
def linspace(start: Tensor, stop: Tensor, num: Tensor, *, dtype: int = -1) -> Tensor:
    """Num evenly spaced values from start to stop."""
    kind = start.dtype if dtype in (-1, None) else to_torch(dtype)
    steps = int(num.item())
    return torch.linspace(start.item(), stop.item(), steps, dtype=kind, device=start.device)


op("diag", inputs="Diagonal", grad=None, infer=checked(needs_rank(1, "Diagonal")))(
    lambda diagonal: torch.diag(diagonal)
)
op("diag_embed", inputs="Input")(
    lambda x, *, offset=0, dim1=-2, dim2=-1: torch.diag_embed(x, offset, dim1, dim2)
)
op("tril_triu")(
    lambda x, *, diagonal=0, lower=True: (torch.tril if lower else torch.triu)(x, diagonal)
)


@op("diag_v2")
def diag_v2(x: Tensor, *, offset: int = 0, padding_value: float = 0.0) -> Tensor:
    """The matrix with diagonal X, or the diagonal of matrix X."""
    out = torch.diag(x, offset)
    if x.dim() == 1 and padding_value:
        keep = torch.diag(torch.ones_like(x, dtype=torch.bool), offset)
        out = torch.where(keep, out, padding_value)
    return out


@op("empty", inputs=_SHAPE_SLOTS, grad=None, infer=shape_from_attr())
def empty(
    shape_tensor: Tensor | None,
    shape_list: list[Tensor],
    *,
    shape: list[Long] = [],
    dtype: int = 5,
    ctx: Any,
) -> Tensor:
    """A tensor of any values; here zeros, so that runs can be repeated."""
    size = resolve_shape(shape, shape_tensor, shape_list)
    return torch.zeros(size, dtype=to_torch(dtype), device=ctx.device)


@op("meshgrid", inputs="X*", outputs="Out*")
def meshgrid(xs: list[Tensor]) -> list[Tensor]:
    """The coordinates of the grid spanned by vectors."""
    return list(torch.meshgrid(*[x.reshape(-1) for x in xs], indexing="ij"))
