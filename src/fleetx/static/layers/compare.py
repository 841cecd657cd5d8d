"""Comparison of values, counting up, and the like, mostly for conditions of control flow."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_dtype, check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.variable import Variable

_NUMBERS = ["float32", "float64", "int32", "int64"]


def _compare(
    op: str, x: Variable, y: Variable, cond: Variable | None, attrs: dict[str, Any] | None = None
) -> Variable:
    check_variable_and_dtype(x, "x", ["bool", "float16", *_NUMBERS], op)
    check_variable_and_dtype(y, "y", ["bool", "float16", *_NUMBERS], op)
    check_type(cond, "cond", (Variable, type(None)), op)
    helper = LayerHelper(op)
    if cond is None:
        cond = helper.create_variable_for_type_inference("bool")
        cond.stop_gradient = True
    helper.append_op(
        type=op, inputs={"X": [x], "Y": [y]}, outputs={"Out": [cond]}, attrs=attrs or {}
    )
    return cond


def less_than(
    x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None
) -> Variable:
    """Return where x < y; with `cond`, write it into that variable."""
    check_type(force_cpu, "force_cpu", (bool, type(None)), "less_than")
    attrs = None if force_cpu is None else {"force_cpu": force_cpu}
    return _compare("less_than", x, y, cond, attrs)


def less_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Return where x <= y; with `cond`, write it into that variable."""
    return _compare("less_equal", x, y, cond)


def greater_than(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Return where x > y; with `cond`, write it into that variable."""
    return _compare("greater_than", x, y, cond)


def greater_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Return where x >= y; with `cond`, write it into that variable."""
    return _compare("greater_equal", x, y, cond)


def equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Return where x == y; with `cond`, write it into that variable."""
    return _compare("equal", x, y, cond)


def not_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Return where x != y; with `cond`, write it into that variable."""
    return _compare("not_equal", x, y, cond)


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """Return x + value, written into `x` itself if `in_place`."""
    check_variable_and_dtype(x, "x", _NUMBERS, "increment")
    helper = LayerHelper("increment")
    out = x if in_place else helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(
        type="increment", inputs={"X": [x]}, outputs={"Out": [out]}, attrs={"step": float(value)}
    )
    return out


def is_empty(x: Variable, cond: Variable | None = None) -> Variable:
    """Return whether `x` has no elements; with `cond`, write it into that variable."""
    check_variable_and_dtype(x, "x", _NUMBERS, "is_empty")
    check_type(cond, "cond", (Variable, type(None)), "is_empty")
    helper = LayerHelper("is_empty")
    if cond is None:
        cond = helper.create_variable_for_type_inference("bool")
        cond.stop_gradient = True
    else:
        check_dtype(cond.dtype, "cond", ["bool"], "is_empty")
    helper.append_op(type="is_empty", inputs={"X": [x]}, outputs={"Out": [cond]})
    return cond


export_defined(globals())
