"""Helpers that append one op each, for the functions of this package."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_choice
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import one_op, op_with_x_shape
from fleetx.static.graph.dtypes import convert_dtype
from fleetx.static.graph.variable import Variable

FLOATS = ["float16", "bfloat16", "float32", "float64"]


def unary(
    type: str, x: Variable, attrs: dict[str, Any] | None = None, layer: str | None = None
) -> Variable:
    """Append an op from X to Out."""
    return one_op(type, {"X": x}, attrs, dtype=x.dtype, layer=layer)


def binary(type: str, x: Variable, y: Variable, axis: int = -1) -> Variable:
    """Append an op from X and Y to Out."""
    return one_op(type, {"X": x, "Y": y}, {"axis": axis}, dtype=x.dtype)


def constant(value: float, dtype: Any) -> Variable:
    """Return a number as a Variable of shape [1]."""
    attrs = {"shape": [1], "dtype": int(dtype), "value": float(value)}
    return one_op("fill_constant", {}, attrs, dtype=dtype)


def scale(x: Variable, factor: float, bias: float = 0.0) -> Variable:
    """Return factor * x + bias."""
    attrs = {"scale": float(factor), "bias": float(bias), "bias_after_scale": True}
    return one_op("scale", {"X": x}, attrs, dtype=x.dtype)


def cast(x: Variable, dtype: Any) -> Variable:
    """Cast x to another element type."""
    wanted = convert_dtype(dtype)
    attrs = {"in_dtype": int(x.dtype), "out_dtype": int(wanted)}
    return one_op("cast", {"X": x}, attrs, dtype=wanted)


def _reshaped(type: str, x: Variable, layer: str, **attrs: Any) -> Variable:
    return op_with_x_shape(type, {"X": x}, attrs, helper=LayerHelper(layer), dtype=x.dtype)


def unsqueeze(x: Variable, axes: list[int]) -> Variable:
    """Insert dimensions of size one."""
    return _reshaped("unsqueeze2", x, "unsqueeze2", axes=axes)


def squeeze(x: Variable, axes: list[int]) -> Variable:
    """Remove dimensions of size one."""
    return _reshaped("squeeze2", x, "squeeze", axes=axes)


def reshape(x: Variable, shape: list[int]) -> Variable:
    """Reshape x; 0 keeps a dimension, -1 is inferred."""
    return _reshaped("reshape2", x, "reshape2", shape=shape)


def transpose(x: Variable, perm: list[int]) -> Variable:
    """Permute the dimensions."""
    return _reshaped("transpose2", x, "transpose", axis=perm)


def reduce(
    type: str, x: Variable, axis: list[int] | None = None, keepdim: bool = False
) -> Variable:
    """Append reduce_sum, reduce_mean, ...; without `axis`, over all dimensions."""
    attrs = {"dim": axis or [0], "keep_dim": keepdim, "reduce_all": axis is None}
    return one_op(f"reduce_{type}", {"X": x}, attrs, dtype=x.dtype, layer=type)


def matmul(
    x: Variable, y: Variable, transpose_y: bool = False, layer: str = "matmul_v2"
) -> Variable:
    """Return the (batched) matrix product."""
    attrs = {"trans_x": False, "trans_y": transpose_y}
    return one_op("matmul_v2", {"X": x, "Y": y}, attrs, dtype=x.dtype, layer=layer)


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
