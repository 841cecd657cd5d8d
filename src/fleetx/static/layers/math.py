"""Arithmetic layers: two tensors, sums, reductions, limits, logic."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static import unique_name
from fleetx.static.building.argument_checks import check_dtype, check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import FLOATS, NUMBERS, one_op
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.activations import exp, log


def _elementwise(op_type: str) -> Callable[..., Variable]:
    def layer(
        x: Variable, y: Variable, axis: int = -1, act: Any = None, name: str | None = None
    ) -> Variable:
        check_variable_and_dtype(x, "x", (*NUMBERS, "bool"), op_type)
        check_variable_and_dtype(y, "y", (*NUMBERS, "bool"), op_type)
        return one_op(op_type, {"X": x, "Y": y}, {"axis": axis}, dtype=x.dtype, name=name, act=act)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"Append `{op_type}`: Y's dimensions are laid on X's from `axis` on."
    return layer


elementwise_add = _elementwise("elementwise_add")
elementwise_sub = _elementwise("elementwise_sub")
elementwise_mul = _elementwise("elementwise_mul")
elementwise_div = _elementwise("elementwise_div")
elementwise_max = _elementwise("elementwise_max")
elementwise_min = _elementwise("elementwise_min")
elementwise_pow = _elementwise("elementwise_pow")
elementwise_mod = _elementwise("elementwise_mod")
elementwise_floordiv = _elementwise("elementwise_floordiv")


def scale(
    x: Variable,
    scale: Any = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: Any = None,
    name: str | None = None,
) -> Variable:
    """Return x * scale + bias, or (x + bias) * scale; scale may be a Variable."""
    check_variable_and_dtype(x, "x", (*NUMBERS, "int8", "int16", "uint8"), "scale")
    inputs: dict[str, Any] = {"X": [x]}
    attrs: dict[str, Any] = {"bias": float(bias), "bias_after_scale": bias_after_scale}
    if isinstance(scale, Variable):
        inputs["ScaleTensor"] = [scale]
    else:
        attrs["scale"] = float(scale)
    return one_op("scale", inputs, attrs, dtype=x.dtype, name=name, act=act)


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
    """Return the sum of tensors of one shape, in `out` if it is given."""
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
    from fleetx.static.layers.tensor import assign

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
def _reduce(op_type: str, input: Variable, dim: Any, keep_dim: bool, name: str | None) -> Variable:
    if dim is not None and not isinstance(dim, list | tuple):
        dim = [dim]
    attrs = {"dim": list(dim) if dim else [0], "keep_dim": keep_dim, "reduce_all": not dim}
    return one_op(op_type, {"X": input}, attrs, dtype=input.dtype, name=name)


def _reduction(op_type: str, allowed: Sequence[str]) -> Callable[..., Variable]:
    def layer(
        input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None
    ) -> Variable:
        check_variable_and_dtype(input, "input", allowed, op_type)
        return _reduce(op_type, input, dim, keep_dim, name)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"Append `{op_type}` over the dimensions `dim`, or over all of them."
    return layer


reduce_sum = _reduction("reduce_sum", NUMBERS)
reduce_mean = _reduction("reduce_mean", NUMBERS)
reduce_max = _reduction("reduce_max", NUMBERS)
reduce_min = _reduction("reduce_min", NUMBERS)
reduce_prod = _reduction("reduce_prod", NUMBERS)
reduce_all = _reduction("reduce_all", ("bool",))
reduce_any = _reduction("reduce_any", ("bool",))


def mean(x: Variable, name: str | None = None) -> Variable:
    """Return the mean of all elements, as a tensor of shape [1]."""
    check_variable_and_dtype(x, "x", FLOATS, "mean")
    return one_op("mean", {"X": x}, dtype=x.dtype, name=name)


def cumsum(x: Variable, axis: Any = None, exclusive: Any = None, reverse: Any = None) -> Variable:
    """Return running sums along an axis (the last one by default)."""
    check_type(x, "x", Variable, "cumsum")
    attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    given = {k: v for k, v in attrs.items() if v is not None}
    return one_op("cumsum", {"X": x}, given, dtype=x.dtype)


def logsumexp(
    x: Variable,
    dim: Any = None,
    keepdim: bool = False,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return log(sum(exp(x))) over dimensions."""
    check_variable_and_dtype(x, "x", FLOATS, "logsumexp")
    total = reduce_sum(exp(x), dim, keepdim)
    if out is None:
        return log(total, name)
    return one_op("log", {"X": total}, dtype=x.dtype, layer="logsumexp", name=name, out=out)


# -- limits --------------------------------------------------------------------------------------
def _named_output(layer: str, x: Variable, name: str | None) -> tuple[LayerHelper, Variable]:
    """Return a helper and an output that carries the layer's name itself."""
    helper = LayerHelper(layer, name=name)
    own = unique_name.generate(f"{helper.name}.tmp") if name is None else name
    return helper, helper.create_variable(type=x.type, name=own, dtype=x.dtype, persistable=False)


def clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """Return x limited to min..max."""
    check_variable_and_dtype(x, "x", FLOATS, "clip")
    helper, out = _named_output("clip", x, name)
    helper.append_op(
        type="clip",
        inputs={"X": x},
        outputs={"Out": out},
        attrs={"min": float(min), "max": float(max)},
    )
    return out


def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """Return x scaled down to the norm `max_norm` if its own is greater."""
    check_variable_and_dtype(x, "X", ("float32", "float64"), "clip_by_norm")
    check_type(max_norm, "max_norm", float, "clip_by_norm")
    helper, out = _named_output("clip_by_norm", x, name)
    helper.append_op(
        type="clip_by_norm", inputs={"X": x}, outputs={"Out": out}, attrs={"max_norm": max_norm}
    )
    return out


def clamp(
    input: Variable,
    min: Any = None,
    max: Any = None,
    output: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return input limited to min..max, of which one may be left out; both may be Variables."""
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
    op_type: str, x: Variable, y: Variable | None, out: Variable | None, name: str | None
) -> Variable:
    check_variable_and_dtype(x, "x", ("bool",), op_type)
    inputs = {"X": x}
    if y is not None:
        check_variable_and_dtype(y, "y", ("bool",), op_type)
        inputs["Y"] = y
    if out is not None:
        check_type(out, "out", Variable, op_type)
    return one_op(op_type, inputs, dtype=x.dtype, out=out, name=name)


def logical_and(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Return where both are true."""
    return _logical("logical_and", x, y, out, name)


def logical_or(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Return where one or both are true."""
    return _logical("logical_or", x, y, out, name)


def logical_xor(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Return where exactly one is true."""
    return _logical("logical_xor", x, y, out, name)


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Return where x is false."""
    return _logical("logical_not", x, None, out, name)


def has_inf(x: Variable) -> Variable:
    """Return whether an element is infinite."""
    check_type(x, "x", Variable, "has_inf")
    return one_op("isinf", {"X": x}, dtype="bool")


def has_nan(x: Variable) -> Variable:
    """Return whether an element is not a number."""
    check_type(x, "x", Variable, "has_nan")
    return one_op("isnan", {"X": x}, dtype="bool")


def isfinite(x: Variable) -> Variable:
    """Return whether all elements are finite."""
    check_variable_and_dtype(x, "x", NUMBERS, "isfinite")
    return one_op("isfinite", {"X": x}, dtype="bool")


def elementwise_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return where both are equal."""
    return one_op(
        "equal",
        {"X": [x], "Y": [y]},
        dtype="bool",
        layer="elementwise_equal",
        name=name,
        stop_gradient=True,
    )


def allclose(
    input: Variable,
    other: Variable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Variable:
    """Return whether |input - other| <= atol + rtol * |other| everywhere."""
    check_type(rtol, "rtol", float, "allclose")
    check_type(atol, "atol", float, "allclose")
    check_type(equal_nan, "equal_nan", bool, "allclose")
    attrs = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    return one_op("allclose", {"Input": input, "Other": other}, attrs, dtype="bool", name=name)


export_defined(globals())
