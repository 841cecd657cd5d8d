"""Reductions over dimensions, and running sums. A full reduction has shape [1]."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.dtypes import VarType, to_torch
from fleetx.static.graph.op_registry import Attr, detached_op, op
from fleetx.static.shapes.infer_rules import always, known, refuse, same_as, set_output

_ATTRS: dict[str, Any] = {
    "dim": Attr("INTS", [0]),
    "keep_dim": False,
    "reduce_all": False,
    "in_dtype": -1,
    "out_dtype": -1,
}


def _dims(dim: Any, count: int, reduce_all: bool) -> tuple[int, ...]:
    dims = dim if isinstance(dim, list | tuple) else (dim,)
    if reduce_all or not dims:
        return tuple(range(count))
    return tuple(sorted(d % count if -count <= d < count else d for d in dims))


class _Extreme(torch.autograd.Function):
    """Largest or smallest value; every element that equals it gets the whole gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dims: tuple[int, ...], find: Any) -> Tensor:
        out: Tensor = find(x, dims, True)
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        x, out = ctx.saved_tensors
        return torch.where(x == out, grads[0], 0.0), None, None


def _extreme(find: Any, x: Tensor, dims: tuple[int, ...], keep: bool) -> Tensor:
    if not x.requires_grad:
        return find(x, dims, keep)  # type: ignore[no-any-return]
    out: Tensor = _Extreme.apply(x, dims, find)
    return out if keep else out.squeeze(dims)


def _sum(x: Tensor, dims: tuple[int, ...], keep: bool) -> Tensor:
    return torch.sum(x, dims, keep, dtype=x.dtype)


def _mean(x: Tensor, dims: tuple[int, ...], keep: bool) -> Tensor:
    if x.is_floating_point():
        return torch.mean(x, dims, keep)
    count = math.prod(x.shape[d] for d in dims)
    return torch.div(_sum(x, dims, keep), count, rounding_mode="trunc")


def _prod(x: Tensor, dims: tuple[int, ...], keep: bool) -> Tensor:
    for d in reversed(dims):
        x = torch.prod(x, d, keep, dtype=x.dtype)
    return x


def _reduce_rule(dtype: VarType | None) -> Callable[[Any, Any], None]:
    @known("X")
    def rule(op: Any, block: Any, x: Any) -> None:
        attrs = op.attrs
        count = len(x.shape)
        dims = _dims(attrs.get("dim"), count, attrs["reduce_all"])
        if any(not 0 <= d < count for d in dims):
            raise refuse(op, block, f"dim {attrs.get('dim')} is not within its {count} dimensions.")
        if attrs["keep_dim"]:
            shape = [1 if i in dims else d for i, d in enumerate(x.shape)]
        else:
            shape = [d for i, d in enumerate(x.shape) if i not in dims] or [1]
        out = attrs.get("out_dtype", -1)
        if dtype is not None:
            out = dtype
        set_output(op, block, "Out", shape, x.dtype if out in (-1, None) else out)

    return rule


def _reduction(
    name: str,
    function: Callable[[Tensor, tuple[int, ...], bool], Tensor],
    dtype: VarType | None = None,
    **options: Any,
) -> None:
    def compute(
        x: Tensor, *, dim: list[int], keep_dim: bool, reduce_all: bool, out_dtype: int
    ) -> Tensor:
        if out_dtype not in (-1, None):
            x = x.to(to_torch(out_dtype))
        dims = _dims(dim, x.dim(), reduce_all)
        out = function(x, dims, keep_dim)
        return out if out.dim() else out.reshape(1)

    op(name, attrs=_ATTRS, infer=_reduce_rule(dtype), **options)(compute)


_reduction("reduce_sum", _sum)
_reduction("reduce_mean", _mean)
_reduction("reduce_max", functools.partial(_extreme, torch.amax))
_reduction("reduce_min", functools.partial(_extreme, torch.amin))
_reduction("reduce_prod", _prod)
_reduction("reduce_all", lambda x, d, k: torch.all(x, d, k), VarType.BOOL, grad=None)
_reduction("reduce_any", lambda x, d, k: torch.any(x, d, k), VarType.BOOL, grad=None)
_reduction("reduce_amax", lambda x, d, k: torch.amax(x, d, k))
_reduction("reduce_amin", lambda x, d, k: torch.amin(x, d, k))
_reduction("frobenius_norm", lambda x, d, k: torch.linalg.vector_norm(x, 2.0, d, k))


for _name, _function in {
    "mean": lambda x: x.mean().reshape(1),
    "squared_l2_norm": lambda x: x.square().sum().reshape(1),
    "l1_norm": lambda x: x.abs().sum().reshape(1),
}.items():
    op(_name, lod="none", infer=always((1,)))(_function)


@op("logsumexp")
def logsumexp(
    x: Tensor, *, axis: list[int] = [0], keepdim: bool = False, reduce_all: bool = False
) -> Tensor:
    """log(sum(exp(X))) over dimensions."""
    out = torch.logsumexp(x, _dims(axis, x.dim(), reduce_all), keepdim)
    return out if out.dim() else out.reshape(1)


_CUM = {"axis": -1, "exclusive": False, "reverse": False, "flatten": False}


@op("cumsum", attrs=_CUM)
def cumsum(x: Tensor, *, axis: int, exclusive: bool, reverse: bool, flatten: bool) -> Tensor:
    """Running sums along an axis; `exclusive` leaves each element itself out."""
    if flatten:
        x, axis = x.reshape(-1), 0
    out = torch.cumsum(x.flip(axis) if reverse else x, axis, dtype=x.dtype)
    if reverse:
        out = out.flip(axis)
    return out - x if exclusive else out


op("cumprod", infer=same_as())(lambda x, *, dim=-1: torch.cumprod(x, dim))


@op("logcumsumexp", attrs=_CUM)
def logcumsumexp(x: Tensor, *, axis: int, exclusive: bool, reverse: bool, flatten: bool) -> Tensor:
    """Logarithm of running sums of exponentials."""
    if flatten:
        x, axis = x.reshape(-1), 0
    y = x.flip(axis) if reverse else x
    if exclusive:
        first = torch.full_like(y.narrow(axis, 0, 1), -float("inf"))
        y = torch.cat([first, y.narrow(axis, 0, y.shape[axis] - 1)], axis)
    out = torch.logcumsumexp(y, axis)
    return out.flip(axis) if reverse else out


for _name, _function in {
    "isfinite": lambda x: torch.isfinite(x).all().reshape(1),
    "isinf": lambda x: torch.isinf(x).any().reshape(1),
    "isnan": lambda x: torch.isnan(x).any().reshape(1),
}.items():
    detached_op(_name, infer=always((1,), VarType.BOOL))(_function)

for _name, _function in {
    "isfinite_v2": torch.isfinite,
    "isinf_v2": torch.isinf,
    "isnan_v2": torch.isnan,
}.items():
    op(_name, grad=None, infer=same_as(dtype=VarType.BOOL))(lambda x, f=_function: f(x))
