"""Comparison and logic."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.layers.build import one_op
from fleetx.static.tensor.common import as_pair, binary, unary
from fleetx.static.variable import Variable

logical_and = layers.logical_and
logical_or = layers.logical_or
logical_xor = layers.logical_xor
logical_not = layers.logical_not


def _compare(op_type: str, x: Any, y: Any, name: str | None) -> Variable:
    x, y = as_pair(x, y, op_type)
    return one_op(op_type, {"X": x, "Y": y}, dtype="bool", name=name, stop_gradient=True)


def equal(x: Variable, y: Any, name: str | None = None) -> Variable:
    """Return, element by element, x == y."""
    return _compare("equal", x, y, name)


def not_equal(x: Variable, y: Any, name: str | None = None) -> Variable:
    """Return, element by element, x != y."""
    return _compare("not_equal", x, y, name)


def less_than(x: Variable, y: Any, name: str | None = None) -> Variable:
    """Return, element by element, x < y."""
    return _compare("less_than", x, y, name)


def less_equal(x: Variable, y: Any, name: str | None = None) -> Variable:
    """Return, element by element, x <= y."""
    return _compare("less_equal", x, y, name)


def greater_than(x: Variable, y: Any, name: str | None = None) -> Variable:
    """Return, element by element, x > y."""
    return _compare("greater_than", x, y, name)


def greater_equal(x: Variable, y: Any, name: str | None = None) -> Variable:
    """Return, element by element, x >= y."""
    return _compare("greater_equal", x, y, name)


def equal_all(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return whether both tensors hold the same values, as one bool."""
    return one_op("equal_all", {"X": x, "Y": y}, dtype="bool", name=name, stop_gradient=True)


def _close(
    op_type: str, x: Variable, y: Variable, rtol: float, atol: float, equal_nan: bool, name: Any
) -> Variable:
    attrs = {"rtol": float(rtol), "atol": float(atol), "equal_nan": equal_nan}
    return one_op(
        op_type, {"Input": x, "Other": y}, attrs, dtype="bool", name=name, stop_gradient=True
    )


def allclose(
    x: Variable,
    y: Variable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Variable:
    """Return whether |x - y| <= atol + rtol * |y| everywhere, as one bool."""
    return _close("allclose", x, y, rtol, atol, equal_nan, name)


def isclose(
    x: Variable,
    y: Variable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Variable:
    """Return, element by element, |x - y| <= atol + rtol * |y|."""
    return _close("isclose", x, y, rtol, atol, equal_nan, name)


def is_empty(x: Variable, name: str | None = None) -> Variable:
    """Return whether a tensor has no elements, as one bool."""
    return layers.is_empty(x)


def _bitwise(op_type: str, x: Variable, y: Variable, out: Variable | None, name: Any) -> Variable:
    found = binary(op_type, x, y, name=name)
    return found if out is None else layers.assign(found, out)


def bitwise_and(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Return x & y, bit by bit."""
    return _bitwise("bitwise_and", x, y, out, name)


def bitwise_or(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Return x | y, bit by bit."""
    return _bitwise("bitwise_or", x, y, out, name)


def bitwise_xor(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Return x ^ y, bit by bit."""
    return _bitwise("bitwise_xor", x, y, out, name)


def bitwise_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Return ~x, bit by bit."""
    found = unary("bitwise_not", x, name=name)
    return found if out is None else layers.assign(found, out)


export_defined(globals(), "logical_and", "logical_not", "logical_or", "logical_xor")
