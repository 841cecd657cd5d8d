"""Helpers that append one op each, for the functions of this package.

Where the functions of 1.x append the same op, this package calls those.
"""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_choice
from fleetx.static.building.one_op import one_op
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.math import scale
from fleetx.static.tensor.common import unary


def binary(type: str, x: Variable, y: Variable, axis: int = -1) -> Variable:
    """Append an op from X and Y to Out."""
    return one_op(type, {"X": x, "Y": y}, {"axis": axis}, dtype=x.dtype)


def constant(value: float, dtype: Any) -> Variable:
    """Return a number as a Variable of shape [1]."""
    attrs = {"shape": [1], "dtype": int(dtype), "value": float(value)}
    return one_op("fill_constant", {}, attrs, dtype=dtype)


def reduce(
    type: str, x: Variable, axis: list[int] | None = None, keepdim: bool = False
) -> Variable:
    """Append reduce_sum, reduce_mean, ...; without `axis`, over all dimensions."""
    attrs = {"dim": axis or [0], "keep_dim": keepdim, "reduce_all": axis is None}
    return one_op(f"reduce_{type}", {"X": x}, attrs, dtype=x.dtype, layer=type)


def pairwise_norm(
    x: Variable, y: Variable, p: float, epsilon: float, keepdim: bool = False
) -> Variable:
    """Return the p-norm of x - y + epsilon along the last dimension."""
    difference = scale(binary("elementwise_sub", x, y), 1.0, epsilon)
    return unary("p_norm", difference, {"porder": float(p), "axis": -1, "keepdim": keepdim})


def reduce_loss(loss: Variable, reduction: str, layer: str) -> Variable:
    """Apply a loss's `reduction`: none, mean or sum."""
    check_reduction(reduction, layer)
    return loss if reduction == "none" else reduce(reduction, loss)


def check_reduction(reduction: str, layer: str) -> None:
    """Refuse an unknown reduction."""
    check_choice(reduction, "reduction", ("none", "mean", "sum"), layer)
