"""Short ways to append the ops that functions of this package are made of."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import one_op, op_with_x_shape
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


def scale(x: Variable, factor: float, bias: float = 0.0) -> Variable:
    """Return factor * x + bias."""
    attrs = {"scale": float(factor), "bias": float(bias), "bias_after_scale": True}
    return one_op("scale", {"X": x}, attrs, dtype=x.dtype)


def cast(x: Variable, dtype: Any) -> Variable:
    """Return x as another element type."""
    from fleetx.static.graph.dtypes import convert_dtype

    wanted = convert_dtype(dtype)
    attrs = {"in_dtype": int(x.dtype), "out_dtype": int(wanted)}
    return one_op("cast", {"X": x}, attrs, dtype=wanted)


def unsqueeze(x: Variable, axes: list[int]) -> Variable:
    """Insert dimensions of size one."""
    helper = LayerHelper("unsqueeze2")
    return op_with_x_shape("unsqueeze2", {"X": x}, {"axes": axes}, helper=helper, dtype=x.dtype)


def squeeze(x: Variable, axes: list[int]) -> Variable:
    """Remove dimensions of size one."""
    helper = LayerHelper("squeeze")
    return op_with_x_shape("squeeze2", {"X": x}, {"axes": axes}, helper=helper, dtype=x.dtype)


def reshape(x: Variable, shape: list[int]) -> Variable:
    """Give x another shape; 0 keeps a dimension, -1 is computed."""
    helper = LayerHelper("reshape2")
    return op_with_x_shape("reshape2", {"X": x}, {"shape": shape}, helper=helper, dtype=x.dtype)


def transpose(x: Variable, perm: list[int]) -> Variable:
    """Permute the dimensions."""
    helper = LayerHelper("transpose")
    return op_with_x_shape("transpose2", {"X": x}, {"axis": perm}, helper=helper, dtype=x.dtype)


def reduce(
    type: str, x: Variable, axis: list[int] | None = None, keepdim: bool = False
) -> Variable:
    """Append reduce_sum, reduce_mean, ...: over all dimensions where no axis is given."""
    attrs = {"dim": axis or [0], "keep_dim": keepdim, "reduce_all": axis is None}
    return one_op(f"reduce_{type}", {"X": x}, attrs, dtype=x.dtype, layer=type)


def matmul(
    x: Variable, y: Variable, transpose_y: bool = False, layer: str = "matmul_v2"
) -> Variable:
    """Return the product of matrices, or of batches of them."""
    attrs = {"trans_x": False, "trans_y": transpose_y}
    return one_op("matmul_v2", {"X": x, "Y": y}, attrs, dtype=x.dtype, layer=layer)


def reduce_loss(loss: Variable, reduction: str, layer: str) -> Variable:
    """Apply a loss's `reduction`: none, mean or sum."""
    check_reduction(reduction, layer)
    return loss if reduction == "none" else reduce(reduction, loss)


def check_reduction(reduction: str, layer: str) -> None:
    """Refuse an unknown reduction."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(
            f"reduction of {layer} must be 'none', 'mean' or 'sum', but received {reduction!r}."
        )
