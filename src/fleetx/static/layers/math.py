"""Arithmetic layers: element-wise, sums, reductions, clamping, logic."""

from __future__ import annotations

import sys
from typing import Any

from fleetx.exports import export_defined
from fleetx.static import unique_name
from fleetx.static.building.argument_checks import (
    check_dtype,
    check_type,
    check_variable_and_dtype,
    optional,
)
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import ANY, FLOATS, NUMBERS, WIDE, one_op
from fleetx.static.building.op_layer import changed, checked, op_layer
from fleetx.static.building.spatial_variants import of_op
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.activations import exp, log
from fleetx.static.layers.tensor import assign


def _elementwise(
    op: str, x: Variable, y: Variable, axis: int = -1, act: Any = None, name: str | None = None
) -> Variable:
    """Append `{op}`: the dimensions of y are aligned with those of x from `axis` on."""
    check_variable_and_dtype(x, "x", ANY, op)
    check_variable_and_dtype(y, "y", ANY, op)
    return one_op(op, {"X": x, "Y": y}, {"axis": axis}, dtype=x.dtype, name=name, act=act)


elementwise_add = of_op(_elementwise, "elementwise_add")
elementwise_sub = of_op(_elementwise, "elementwise_sub")
elementwise_mul = of_op(_elementwise, "elementwise_mul")
elementwise_div = of_op(_elementwise, "elementwise_div")
elementwise_max = of_op(_elementwise, "elementwise_max")
elementwise_min = of_op(_elementwise, "elementwise_min")
elementwise_pow = of_op(_elementwise, "elementwise_pow")
elementwise_mod = of_op(_elementwise, "elementwise_mod")
elementwise_floordiv = of_op(_elementwise, "elementwise_floordiv")


@op_layer("x", tensors="ScaleTensor=scale", x=(*NUMBERS, "int8", "int16", "uint8"))
def scale(
    x: Variable,
    scale: Any = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: Any = None,
    name: str | None = None,
) -> Variable:
    """Return x * scale + bias, or (x + bias) * scale; scale may be a Variable."""
    return changed(scale=scale if isinstance(scale, Variable) else float(scale))


def _check_summands(value: Any, label: str, layer: str) -> list[Variable]:
    check_type(value, label, (Variable, tuple, list), layer)
    summands = [value] if isinstance(value, Variable) else list(value)
    for var in summands:
        check_variable_and_dtype(var, label, NUMBERS, layer)
    return summands


def sum(x: Any) -> Variable:
    """Return the sum of tensors of one shape."""
    summands = _check_summands(x, "x", "sum")
    return one_op("sum", {"X": summands}, dtype=summands[0].dtype)


def sums(input: Any, out: Variable | None = None) -> Variable:
    """Return the sum of tensors of one shape, in `out` if given."""
    summands = _check_summands(input, "input", "sums")
    if out is not None:
        check_variable_and_dtype(out, "out", NUMBERS, "sums")
    return one_op("sum", {"X": summands}, dtype=summands[0].dtype, out=out)


def addcmul(
    input: Variable,
    tensor1: Variable,
    tensor2: Variable,
    value: float = 1.0,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return input + value * tensor1 * tensor2."""
    for label, var in (("input", input), ("tensor1", tensor1), ("tensor2", tensor2)):
        check_variable_and_dtype(var, label, NUMBERS, "addcmul")
    floating = input.dtype.name.startswith(("FP", "BF"))
    check_type(value, "value", float if floating else int, "addcmul")
    product = one_op(
        "elementwise_mul", {"X": tensor1, "Y": tensor2}, {"axis": -1}, dtype=tensor1.dtype
    )
    inputs = {"X": input, "Y": product * value}
    result = one_op("elementwise_add", inputs, {"axis": -1}, dtype=input.dtype)
    return result if out is None else assign(result, out)


# -- reductions ----------------------------------------------------------------------------------


def _reduce(
    op: str, input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Append `{op}` over the dimensions `dim`, or over all of them."""
    check_variable_and_dtype(
        input, "input", ("bool",) if op in ("reduce_all", "reduce_any") else NUMBERS, op
    )
    if dim is not None and not isinstance(dim, list | tuple):
        dim = [dim]
    attrs = {"dim": list(dim) if dim else [0], "keep_dim": keep_dim, "reduce_all": not dim}
    return one_op(op, {"X": input}, attrs, dtype=input.dtype, name=name)


reduce_sum = of_op(_reduce, "reduce_sum")
reduce_mean = of_op(_reduce, "reduce_mean")
reduce_max = of_op(_reduce, "reduce_max")
reduce_min = of_op(_reduce, "reduce_min")
reduce_prod = of_op(_reduce, "reduce_prod")
reduce_all = of_op(_reduce, "reduce_all")
reduce_any = of_op(_reduce, "reduce_any")


@op_layer("x", x=FLOATS)
def mean(x: Variable, name: str | None = None) -> Variable:
    """Return the mean of all elements, as a tensor of shape [1]."""


@op_layer("x", x=Variable)
def cumsum(x: Variable, axis: Any = None, exclusive: Any = None, reverse: Any = None) -> Variable:
    """Return the cumulative sums along an axis (the last one by default)."""


@checked(x=FLOATS)
def logsumexp(
    x: Variable,
    dim: Any = None,
    keepdim: bool = False,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return log(sum(exp(x))) over dimensions."""
    total = reduce_sum(exp(x), dim, keepdim)
    if out is None:
        return log(total, name)
    return one_op("log", {"X": total}, dtype=x.dtype, layer="logsumexp", name=name, out=out)


# -- limits --------------------------------------------------------------------------------------
def _named_output(op: str, x: Variable, attrs: dict[str, Any], name: str | None) -> Variable:
    """Append an op whose output has the layer's name."""
    helper = LayerHelper(op, name=name)
    own = unique_name.generate(f"{helper.name}.tmp") if name is None else name
    out = helper.create_variable(type=x.type, name=own, dtype=x.dtype, persistable=False)
    helper.append_op(type=op, inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
    return out


@checked(x=FLOATS)
def clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """Clamp x to [min, max]."""
    return _named_output("clip", x, {"min": float(min), "max": float(max)}, name)


@checked(x=WIDE, max_norm=float)
def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """Scale x down to the norm `max_norm` if its norm is greater."""
    return _named_output("clip_by_norm", x, {"max_norm": max_norm}, name)


def clamp(
    input: Variable,
    min: Any = None,
    max: Any = None,
    output: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Clamp input to [min, max]; either may be omitted, and both may be Variables."""
    if min is None and max is None:
        raise ArgumentError("clamp needs min or max.")
    check_type(input, "input", Variable, "clamp")
    inputs: dict[str, Any] = {"X": input}
    attrs = {"min": -sys.float_info.max, "max": sys.float_info.max}
    for label, slot, value in (("min", "Min", min), ("max", "Max", max)):
        if isinstance(value, Variable):
            check_dtype(value.dtype, label, NUMBERS, "clamp")
            value.stop_gradient = True
            inputs[slot] = value
        elif value is not None:
            check_type(value, label, (float, int), "clamp")
            attrs[label] = float(value)
    return one_op("clip", inputs, attrs, dtype=input.dtype, layer="clamp", name=name, out=output)


# -- logic ---------------------------------------------------------------------------------------
def _logical(
    op: str, x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    check_variable_and_dtype(x, "x", ("bool",), op)
    check_variable_and_dtype(y, "y", ("bool",), op)
    if out is not None:
        check_type(out, "out", Variable, op)
    return one_op(op, {"X": x, "Y": y}, dtype=x.dtype, out=out, name=name)


logical_and = of_op(_logical, "logical_and", "Return x and y, element-wise.")
logical_or = of_op(_logical, "logical_or", "Return x or y, element-wise.")
logical_xor = of_op(_logical, "logical_xor", "Return x xor y, element-wise.")


@op_layer("x", x=("bool",), out=optional(Variable))
def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Return not x, element-wise."""


@op_layer("x", op="isinf", layer="isinf", element_type="bool", x=Variable)
def has_inf(x: Variable) -> Variable:
    """Return whether any element is infinite."""


@op_layer("x", op="isnan", layer="isnan", element_type="bool", x=Variable)
def has_nan(x: Variable) -> Variable:
    """Return whether any element is NaN."""


@op_layer("x", element_type="bool", x=NUMBERS)
def isfinite(x: Variable) -> Variable:
    """Return whether all elements are finite."""


@op_layer("x y", op="equal", element_type="bool", no_grad="Out")
def elementwise_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return x == y, element-wise."""


@op_layer("input other", element_type="bool", rtol=float, atol=float, equal_nan=bool)
def allclose(
    input: Variable,
    other: Variable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Variable:
    """Return whether |input - other| <= atol + rtol * |other| everywhere."""


export_defined(globals())
