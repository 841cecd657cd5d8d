"""Comparison and counters, mostly for the conditions of control flow."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import as_dtype, check_type, check_variable_and_dtype
from fleetx.static.building.one_op import HALF_TOO, INTS, WIDE_NUMBERS, one_op
from fleetx.static.building.op_layer import checked, op_layer
from fleetx.static.building.spatial_variants import of_op
from fleetx.static.graph.variable import Variable


def _compare(op: str, x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    return _compare_with(op, x, y, cond, {})


def _compare_with(
    op: str, x: Variable, y: Variable, cond: Variable | None, attrs: dict[str, Any]
) -> Variable:
    for name, var in (("x", x), ("y", y)):
        check_variable_and_dtype(var, name, ("bool", *HALF_TOO, *INTS), op)
    check_type(cond, "cond", (Variable, type(None)), op)
    new = cond is None
    return one_op(op, {"X": x, "Y": y}, attrs, dtype="bool", out=cond, stop_gradient=new)


@checked(force_cpu=bool | None)
def less_than(
    x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None
) -> Variable:
    """Return x < y element-wise, in `cond` if given."""
    return _compare_with("less_than", x, y, cond, {"force_cpu": force_cpu})


_DOC = "Return x {} y element-wise, in `cond` if given."
less_equal = of_op(_compare, "less_equal", _DOC.format("<="))
greater_than = of_op(_compare, "greater_than", _DOC.format(">"))
greater_equal = of_op(_compare, "greater_equal", _DOC.format(">="))
equal = of_op(_compare, "equal", _DOC.format("=="))
not_equal = of_op(_compare, "not_equal", _DOC.format("!="))


@checked(x=WIDE_NUMBERS)
def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """Return x + value, stored in `x` if `in_place`."""
    out = x if in_place else None
    return one_op("increment", {"X": x}, {"step": float(value)}, dtype=x.dtype, out=out)


def _condition(cond: Variable | None, name: str, layer: str) -> None:
    check_type(cond, name, (Variable, type(None)), layer)
    if cond is not None:
        as_dtype("bool")(cond.dtype, name, layer)


@op_layer("x", element_type="bool", written="cond", no_grad="Out", x=WIDE_NUMBERS, cond=_condition)
def is_empty(x: Variable, cond: Variable | None = None) -> Variable:
    """Return whether `x` has no elements, in `cond` if given."""


export_defined(globals())
