"""Searching and sorting: extremes, top k, unique values, conditions, one-hot codes, shards."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fleetx.static.graph.dtypes import VarType, to_torch
from fleetx.static.graph.op_registry import Long, detached_op, op
from fleetx.static.shapes.infer_rules import (
    broadcast_shape,
    input_var,
    known,
    refuse,
    same_as,
    set_output,
    shapes,
)


def _index_type(dtype: int) -> torch.dtype:
    return torch.int64 if dtype in (-1, None) else to_torch(dtype)


def _position(
    find: Callable[..., Tensor],
    x: Tensor,
    *,
    axis: Long = 0,
    keepdims: bool = False,
    dtype: int = -1,
    flatten: bool = False,
) -> Tensor:
    """The position of the largest or smallest element along an axis."""
    out = find(x.reshape(-1), 0) if flatten else find(x, axis, keepdims)
    return out.to(_index_type(dtype))


for _type, _find in {"arg_max": torch.argmax, "arg_min": torch.argmin}.items():
    detached_op(_type)(functools.partial(_position, _find))


@op("argsort", outputs="Out Indices")
def argsort(x: Tensor, *, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """X sorted along an axis, and where the elements came from."""
    values, indices = torch.sort(x, dim=axis, descending=descending, stable=True)
    return values, indices


@known("X")
def _top_k_rule(op: Any, block: Any, x: Any) -> None:
    axis = op.attrs.get("axis", -1)
    shape, k = list(x.shape), -1 if op.input("K") else op.attrs["k"]
    if not op.input("K") and k < 1:
        raise refuse(op, block, f"k is {k}, but must be 1 or more.")
    if 0 <= shape[axis] < k:
        raise refuse(op, block, f"k is {k}, but there are only {shape[axis]} elements.")
    shape[axis] = k
    set_output(op, block, "Out", shape, x.dtype)
    set_output(op, block, "Indices", shape, VarType.INT64)


@op("top_k", inputs="X K?!", outputs="Out Indices", infer=_top_k_rule)
def top_k(x: Tensor, k_tensor: Tensor | None, *, k: int = 1) -> tuple[Tensor, Tensor]:
    """The k largest elements of the last dimension, and their positions."""
    values, indices = torch.topk(x, k if k_tensor is None else int(k_tensor.item()), -1)
    return values, indices


@op("top_k_v2", inputs="X K?!", outputs="Out Indices", infer=_top_k_rule)
def top_k_v2(
    x: Tensor,
    k_tensor: Tensor | None,
    *,
    k: int = 1,
    axis: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest elements along an axis, and their positions."""
    count = k if k_tensor is None else int(k_tensor.item())
    values, indices = torch.topk(x, count, axis, largest, sorted)
    return values, indices


@op("kthvalue", outputs="Out Indices")
def kthvalue(
    x: Tensor, *, k: int = 1, axis: int = -1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """The k-th smallest element along an axis, and its position."""
    values, indices = torch.kthvalue(x, k, axis, keepdim)
    return values, indices


# -- conditions ----------------------------------------------------------------------------------
def _where_rule(op: Any, block: Any) -> None:
    found = [input_var(op, block, s) for s in ("Condition", "X", "Y")]
    if any(v is None for v in found):
        return
    shape = found[1].shape
    for other in (found[2].shape, found[0].shape):
        merged = broadcast_shape(shape, other)
        if merged is None:
            raise refuse(op, block, "the shapes cannot be broadcast together.")
        shape = merged
    set_output(op, block, "Out", shape, found[1].dtype)


op("where", inputs="Condition! X Y", infer=_where_rule)(
    lambda condition, x, y: torch.where(condition, x, y)
)


# The coordinates of all elements that are true, one per row.
detached_op(
    "where_index",
    inputs="Condition",
    infer=shapes("Condition", lambda op, x: {"Out": ((-1, len(x.shape)), VarType.INT64)}),
)(lambda x: torch.nonzero(x))


@op(
    "masked_select",
    inputs="X Mask!",
    outputs="Y",
    lod="none",
    infer=shapes("X", lambda op, x: {"Y": ((-1,), x.dtype)}),
)
def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements of X where the mask is true."""
    return torch.masked_select(x, mask)


@op("searchsorted", inputs="SortedSequence Values")
def searchsorted(
    given: Tensor, values: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Where values would be inserted into sorted rows."""
    return torch.searchsorted(given, values, out_int32=out_int32, right=right)


# -- unique values -------------------------------------------------------------------------------
@known("X")
def _unique_rule(op: Any, block: Any, x: Any) -> None:
    axis = op.attrs.get("axis") or []
    shape = list(x.shape) if axis else [-1]
    for a in axis:
        shape[a] = -1
    set_output(op, block, "Out", shape, x.dtype)
    sorted_form = op.attrs.get("is_sorted", False)
    inverse = (-1,) if sorted_form else x.shape
    set_output(op, block, "Index", inverse, op.attrs["dtype"])
    for slot in ("Indices", "Counts", "Count"):
        set_output(op, block, slot, (-1,), op.attrs["dtype"])


def _sorted_values(x: Tensor, dim: int | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return unique values, the positions where they first appear, inverse and counts."""
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True, dim=dim)
    inverse = inverse.reshape(-1)
    positions = torch.arange(inverse.numel(), device=x.device)
    first = torch.full_like(counts, inverse.numel()).scatter_reduce(0, inverse, positions, "amin")
    return values, first, inverse, counts


def _in_order_of_appearance(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the same, with the values in the order they first appear."""
    values, first, inverse, counts = _sorted_values(x.reshape(-1), None)
    order = torch.argsort(first)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(order.numel(), device=x.device)
    return values[order], first[order], rank[inverse], counts[order]


@detached_op(
    "unique",
    outputs="Out Indices? Index? Counts?",
    attrs={"return_index": False, "return_inverse": False, "return_counts": False},
    infer=_unique_rule,
)
def unique(
    x: Tensor, *, dtype: int = 2, axis: list[int] = [], is_sorted: bool = False
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """The different values: sorted, or (the older form) in the order they first appear."""
    kind = to_torch(dtype)
    if is_sorted:
        values, first, inverse, counts = _sorted_values(x, axis[0] if axis else None)
    else:
        values, first, inverse, counts = _in_order_of_appearance(x)
    return values, first.to(kind), inverse.to(kind), counts.to(kind)


@detached_op("unique_with_counts", outputs="Out Index Count", infer=_unique_rule)
def unique_with_counts(x: Tensor, *, dtype: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """The different values in order of appearance, where they went, and how often they occur."""
    kind = to_torch(dtype)
    values, _, inverse, counts = _in_order_of_appearance(x)
    return values, inverse.to(kind), counts.to(kind)


@detached_op("histogram")
def histogram(x: Tensor, *, bins: Long = 100, min: int = 0, max: int = 0) -> Tensor:
    """How many elements fall into each of `bins` equal ranges."""
    if x.is_meta:
        return torch.empty((bins,), dtype=torch.int64, device="meta")
    return torch.histc(x.double(), bins, min, max).to(torch.int64)


# -- codes ---------------------------------------------------------------------------------------
@known("X")
def _one_hot_rule(op: Any, block: Any, x: Any) -> None:
    depth = -1 if op.input("depth_tensor") else op.attrs["depth"]
    if depth < 1 and not op.input("depth_tensor"):
        raise refuse(op, block, f"depth is {depth}, but must be 1 or more.")
    head = x.shape[:-1] if op.type == "one_hot" else x.shape
    if op.type == "one_hot" and (len(x.shape) < 2 or x.shape[-1] != 1):
        raise refuse(op, block, "it must have 2 dimensions or more, and the last one must be 1.")
    set_output(op, block, "Out", (*head, depth), op.attrs["dtype"])


_ONE_HOT: dict[str, Any] = {
    "inputs": "X depth_tensor?",
    "attrs": {"depth": -1, "dtype": 5, "allow_out_of_range": False},
    "grad": None,
    "infer": _one_hot_rule,
}


@op("one_hot_v2", **_ONE_HOT)
def one_hot_v2(
    x: Tensor, depth_tensor: Tensor | None, *, depth: int, dtype: int, allow_out_of_range: bool
) -> Tensor:
    """Codes in a new last dimension."""
    depth = depth if depth_tensor is None else int(depth_tensor.item())
    index = x.long()
    if allow_out_of_range:
        # A code of its own for everything outside, cut off again.
        outside = (index < 0) | (index >= depth)
        index = torch.where(outside, depth, index)
        return F.one_hot(index, depth + 1)[..., :depth].to(to_torch(dtype))
    return F.one_hot(index, depth).to(to_torch(dtype))


@op("one_hot", **_ONE_HOT)
@functools.wraps(one_hot_v2)
def one_hot(x: Tensor, depth_tensor: Tensor | None, **attrs: Any) -> Tensor:
    """Codes in place of the last dimension, which has size 1."""
    if x.dim() < 2 or x.shape[-1] != 1:
        raise ValueError(
            f"one_hot takes a last dimension of size 1 after others, not shape {list(x.shape)}."
        )
    return one_hot_v2(x.squeeze(-1), depth_tensor, **attrs)


@op("shard_index", grad=None, infer=same_as())
def shard_index(
    x: Tensor, *, index_num: int = 0, nshards: int = 1, shard_id: int = 0, ignore_value: int = -1
) -> Tensor:
    """The position within the shard, or `ignore_value` for what other shards hold."""
    size = (index_num + nshards - 1) // nshards
    mine = torch.div(x, size, rounding_mode="floor") == shard_id
    return torch.where(mine, x % size, ignore_value)
