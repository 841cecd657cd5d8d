"""Mean, median, variance and standard deviation."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetx.static import layers
from fleetx.static.graph.dtypes import is_floating
from fleetx.static.graph.variable import Variable
from fleetx.static.tensor.attribute import numel
from fleetx.static.tensor.common import axis_list, reduction
from fleetx.static.tensor.math import sum as _sum
from fleetx.static.tensor.search import kthvalue

__all__ = ["mean", "median", "std", "var"]


def mean(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Return the mean over one axis, several, or all."""
    return reduction("reduce_mean", x, axis, keepdim, name=name, layer="mean")


def var(
    x: Variable, axis: Any = None, unbiased: bool = True, keepdim: bool = False, name: Any = None
) -> Variable:
    """Return the variance over one axis, several, or all; `unbiased` divides by n - 1."""
    centred = layers.square(layers.elementwise_sub(x, mean(x, axis, True)))
    if not unbiased:
        return mean(centred, axis, keepdim, name)
    total = _sum(centred, axis, keepdim=keepdim)
    counted = numel(x) if axis is None else _size_along(x, axis_list(axis) or [])
    count = layers.cast(counted, x.dtype)
    # For a single element Paddle divides by one, not by zero.
    count = layers.elementwise_max(
        layers.scale(count, bias=-1.0), layers.fill_constant([1], x.dtype, 1.0)
    )
    return layers.elementwise_div(total, count, name=name)


def _size_along(x: Variable, axes: list[int]) -> Variable:
    sizes = layers.gather(layers.shape(x), layers.assign(_positive(x, axes)))
    return layers.reduce_prod(sizes)


def _positive(x: Variable, axes: list[int]) -> Any:
    return np.array([a % len(x.shape) for a in axes], dtype="int32")


def std(
    x: Variable, axis: Any = None, unbiased: bool = True, keepdim: bool = False, name: Any = None
) -> Variable:
    """Return the standard deviation over one axis, several, or all."""
    return layers.sqrt(var(x, axis, unbiased, keepdim, name))


def median(
    x: Variable, axis: int | None = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Return the median, or the mean of the two middle elements, as a float."""
    if not is_floating(x.dtype):
        x = layers.cast(x, "float32")
    if axis is None:
        middle = _median(layers.reshape(x, [-1]), 0, False)
        return layers.reshape(middle, [1] * (len(x.shape) if keepdim else 1), name=name)
    return _median(x, axis, keepdim)


def _median(x: Variable, along: int, keepdim: bool) -> Variable:
    size = x.shape[along]
    if size < 0:
        raise ValueError(f"median needs the size of axis {along} of {x.name!r} to be known.")
    upper = kthvalue(x, size // 2 + 1, along, keepdim)[0]
    if size % 2:
        return upper
    lower = kthvalue(x, size // 2, along, keepdim)[0]
    return layers.scale(layers.elementwise_add(lower, upper), 0.5)
