"""Comparison and logic."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.building.one_op import one_op
from fleetx.static.building.spatial_variants import with_first
from fleetx.static.graph.variable import Variable
from fleetx.static.tensor.common import as_pair, binary, unary

logical_and = layers.logical_and
logical_or = layers.logical_or
logical_xor = layers.logical_xor
logical_not = layers.logical_not


def _compare(op_type: str, x: Variable, y: Any, name: str | None = None) -> Variable:
    x, y = as_pair(x, y, op_type)
    return one_op(op_type, {"X": x, "Y": y}, dtype="bool", name=name, stop_gradient=True)


equal = with_first(_compare, "equal", "equal", doc="Return, element by element, x == y.")
not_equal = with_first(
    _compare, "not_equal", "not_equal", doc="Return, element by element, x != y."
)
less_than = with_first(_compare, "less_than", "less_than", doc="Return, element by element, x < y.")
less_equal = with_first(
    _compare, "less_equal", "less_equal", doc="Return, element by element, x <= y."
)
greater_than = with_first(
    _compare, "greater_than", "greater_than", doc="Return, element by element, x > y."
)
greater_equal = with_first(
    _compare, "greater_equal", "greater_equal", doc="Return, element by element, x >= y."
)


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
    """Return, element by element, |x - y| <= atol + rtol * |y|."""
    attrs = {"rtol": float(rtol), "atol": float(atol), "equal_nan": equal_nan}
    return one_op(
        op_type, {"Input": x, "Other": y}, attrs, dtype="bool", name=name, stop_gradient=True
    )


isclose = with_first(_close, "isclose", "isclose")
allclose = with_first(
    _close,
    "allclose",
    "allclose",
    doc="Return whether isclose(x, y) holds everywhere: one bool.",
)


def is_empty(x: Variable, name: str | None = None) -> Variable:
    """Return whether a tensor has no elements, as one bool."""
    return layers.is_empty(x)


def _bitwise(
    op_type: str, x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    found = binary(op_type, x, y, name=name)
    return found if out is None else layers.assign(found, out)


bitwise_and = with_first(_bitwise, "bitwise_and", "bitwise_and", doc="Return x & y, bit by bit.")
bitwise_or = with_first(_bitwise, "bitwise_or", "bitwise_or", doc="Return x | y, bit by bit.")
bitwise_xor = with_first(_bitwise, "bitwise_xor", "bitwise_xor", doc="Return x ^ y, bit by bit.")


def bitwise_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Return ~x, bit by bit."""
    found = unary("bitwise_not", x, name=name)
    return found if out is None else layers.assign(found, out)


export_defined(globals(), "logical_and", "logical_not", "logical_or", "logical_xor")
