"""Comparison and logic."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.building.adapted import adapted
from fleetx.static.building.one_op import one_op
from fleetx.static.building.spatial_variants import of_op
from fleetx.static.graph.variable import Variable
from fleetx.static.tensor.common import as_pair, binary, unary

logical_and = layers.logical_and
logical_or = layers.logical_or
logical_xor = layers.logical_xor
logical_not = layers.logical_not


def _compare(op_type: str, x: Variable, y: Any, name: str | None = None) -> Variable:
    x, y = as_pair(x, y, op_type)
    return one_op(op_type, {"X": x, "Y": y}, dtype="bool", name=name, stop_gradient=True)


equal = of_op(_compare, "equal", "Return x == y element-wise.")
not_equal = of_op(_compare, "not_equal", "Return x != y element-wise.")
less_than = of_op(_compare, "less_than", "Return x < y element-wise.")
less_equal = of_op(_compare, "less_equal", "Return x <= y element-wise.")
greater_than = of_op(_compare, "greater_than", "Return x > y element-wise.")
greater_equal = of_op(_compare, "greater_equal", "Return x >= y element-wise.")


def equal_all(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return whether both tensors hold the same values, as one bool."""
    return one_op("equal_all", {"X": x, "Y": y}, dtype="bool", name=name, stop_gradient=True)


def _close(
    op_type: str,
    x: Variable,
    y: Variable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Variable:
    """Return |x - y| <= atol + rtol * |y| element-wise."""
    attrs = {"rtol": float(rtol), "atol": float(atol), "equal_nan": equal_nan}
    return one_op(
        op_type, {"Input": x, "Other": y}, attrs, dtype="bool", name=name, stop_gradient=True
    )


isclose = of_op(_close, "isclose")
allclose = of_op(_close, "allclose", "Return whether isclose(x, y) holds everywhere: one bool.")


is_empty = adapted(layers.is_empty, "x, name", doc="Return whether a tensor has no elements.")


def _bitwise(
    op_type: str, x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    found = binary(op_type, x, y, name=name)
    return found if out is None else layers.assign(found, out)


bitwise_and = of_op(_bitwise, "bitwise_and", "Return x & y, bitwise.")
bitwise_or = of_op(_bitwise, "bitwise_or", "Return x | y, bitwise.")
bitwise_xor = of_op(_bitwise, "bitwise_xor", "Return x ^ y, bitwise.")


def bitwise_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Return ~x, bitwise."""
    found = unary("bitwise_not", x, name=name)
    return found if out is None else layers.assign(found, out)


export_defined(globals(), "logical_and", "logical_not", "logical_or", "logical_xor")
