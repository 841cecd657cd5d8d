"""Expansion of rows, fetched once per id, to all positions of the ids, and its gradient.

The counterpart of `F.embedding` for tables of a batch's size: the gradient of a row is the sum over
its positions, computed by compiled code in one pass.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from fleetx.kernels.index import sum_rows


class _Spread(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.count = len(rows)
        return rows.index_select(0, places)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        return sum_rows(gradient, places, ctx.count), None


def spread_rows(rows: Tensor, places: Tensor) -> Tensor:
    """Return the rows with the indices in `places`: places.shape + (dim,)."""
    spread: Tensor = _Spread.apply(rows, places.reshape(-1))
    return spread.view(*places.shape, rows.shape[1])
