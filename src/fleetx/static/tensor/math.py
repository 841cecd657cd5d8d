"""Arithmetic: functions of every element, of two tensors, and sums and extremes along axes."""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.building.one_op import one_op
from fleetx.static.graph.dtypes import VarType, convert_dtype
from fleetx.static.graph.variable import Variable
from fleetx.static.tensor.common import axis_list, binary, reduction, unary

_ELEMENTWISE = {
    "abs": "the size without sign",
    "acos": "the arc cosine",
    "acosh": "the inverse hyperbolic cosine",
    "asin": "the arc sine",
    "asinh": "the inverse hyperbolic sine",
    "atan": "the arc tangent",
    "atanh": "the inverse hyperbolic tangent",
    "ceil": "the next whole number upwards",
    "cos": "the cosine",
    "cosh": "the hyperbolic cosine",
    "digamma": "the derivative of lgamma",
    "erf": "the error function",
    "erfinv": "the inverse of the error function",
    "exp": "e to the power of x",
    "expm1": "exp(x) - 1",
    "floor": "the next whole number downwards",
    "lgamma": "the logarithm of the gamma function",
    "log": "the natural logarithm",
    "log10": "the logarithm to base 10",
    "log1p": "log(1 + x)",
    "log2": "the logarithm to base 2",
    "reciprocal": "1 / x",
    "round": "the nearest whole number",
    "rsqrt": "1 / sqrt(x)",
    "sign": "-1, 0 or 1 by sign",
    "sin": "the sine",
    "sinh": "the hyperbolic sine",
    "sqrt": "the square root",
    "square": "x * x",
    "tan": "the tangent",
    "tanh": "the hyperbolic tangent",
    "trunc": "the whole number towards zero",
}
_PAIRS = {
    "add": ("elementwise_add", "x + y"),
    "subtract": ("elementwise_sub", "x - y"),
    "multiply": ("elementwise_mul", "x * y"),
    "divide": ("elementwise_div", "x / y"),
    "floor_divide": ("elementwise_floordiv", "x // y"),
    "remainder": ("elementwise_mod", "x % y"),
    "maximum": ("elementwise_max", "the larger one"),
    "minimum": ("elementwise_min", "the smaller one"),
    "fmax": ("elementwise_fmax", "the larger one, NaN only where both are"),
    "fmin": ("elementwise_fmin", "the smaller one, NaN only where both are"),
    "heaviside": ("elementwise_heaviside", "0, y or 1 by the sign of x"),
}


def _elementwise(op_type: str, what: str) -> Callable[..., Variable]:
    def function(x: Variable, name: str | None = None) -> Variable:
        return unary(op_type, x, name=name)

    function.__name__ = function.__qualname__ = op_type
    function.__doc__ = f"Return, element by element, {what}."
    return function


def _pair(name: str, op_type: str, what: str) -> Callable[..., Variable]:
    def function(x: Variable, y: Any, name: str | None = None) -> Variable:
        return binary(op_type, x, y, {"axis": -1}, name=name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return, element by element, {what}."
    return function


for _name, _what in _ELEMENTWISE.items():
    globals()[_name] = _elementwise(_name, _what)
for _name, (_type, _what) in _PAIRS.items():
    globals()[_name] = _pair(_name, _type, _what)

mod = globals()["remainder"]
floor_mod = mod


def tanh_(x: Variable, name: str | None = None) -> Variable:
    """Return the hyperbolic tangent; in a program nothing is changed in place."""
    return unary("tanh", x, name=name)


def neg(x: Variable, name: str | None = None) -> Variable:
    """Return -x."""
    return layers.scale(x, scale=-1.0, name=name)


def deg2rad(x: Variable, name: str | None = None) -> Variable:
    """Return an angle in degrees as radians."""
    return layers.scale(x, scale=pi / 180, name=name)


def rad2deg(x: Variable, name: str | None = None) -> Variable:
    """Return an angle in radians as degrees."""
    return layers.scale(x, scale=180 / pi, name=name)


def atan2(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return the angle of the point (y, x)."""
    return one_op("atan2", {"X1": x, "X2": y}, dtype=x.dtype, name=name)


def stanh(
    x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None
) -> Variable:
    """Return scale_b * tanh(scale_a * x)."""
    return layers.stanh(x, scale_a, scale_b, name)


def pow(x: Variable, y: Any, name: str | None = None) -> Variable:
    """Return x to the power of a number or, element by element, of a tensor."""
    if isinstance(y, int | float):
        return unary("pow", x, {"factor": float(y)}, name=name)
    return binary("elementwise_pow", x, y, {"axis": -1}, name=name)


def scale(
    x: Variable,
    scale: Any = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Return scale * x + bias, or scale * (x + bias)."""
    return layers.scale(x, scale, bias, bias_after_scale, act, name)


def increment(x: Variable, value: float = 1.0, name: str | None = None) -> Variable:
    """Add a number to a tensor with one element, in place."""
    return layers.increment(x, value, in_place=True)


def clip(x: Variable, min: Any = None, max: Any = None, name: str | None = None) -> Variable:
    """Return x kept between two numbers or one-element tensors; None is no limit."""
    inputs: dict[str, Any] = {"X": x}
    limit = 3.4028234663852886e38
    attrs = {"min": -limit, "max": limit}
    if x.dtype in (VarType.INT32, VarType.INT64):
        bits = 31 if x.dtype == VarType.INT32 else 63
        attrs = {"min": float(-(2**bits)), "max": float(2**bits - 1)}
    for key, slot, value in (("min", "Min", min), ("max", "Max", max)):
        if isinstance(value, Variable):
            inputs[slot] = value
        elif value is not None:
            attrs[key] = float(value)
    return one_op("clip", inputs, attrs, dtype=x.dtype, name=name)


def add_n(inputs: Any, name: str | None = None) -> Variable:
    """Return the sum of several tensors of one shape."""
    return layers.sum(inputs)


def multiplex(inputs: list[Variable], index: Variable, name: str | None = None) -> Variable:
    """Return row i of the tensor that index[i] names."""
    return layers.multiplex(inputs, index)


def inner(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return the sum of products over the last axes of both."""
    from fleetx.static.tensor.linalg import matmul

    size = x.shape[-1]
    rows = matmul(layers.reshape(x, [-1, size]), layers.reshape(y, [-1, size]), transpose_y=True)
    shape = [*x.shape[:-1], *y.shape[:-1]]
    return layers.reshape(rows, shape or [1], name=name)


def outer(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return the product of every element of x with every element of y."""
    return layers.elementwise_mul(layers.reshape(x, [-1, 1]), layers.reshape(y, [1, -1]), name=name)


def lerp(x: Variable, y: Variable, weight: Any, name: str | None = None) -> Variable:
    """Return x + weight * (y - x)."""
    if not isinstance(weight, Variable):
        weight = layers.fill_constant([1], x.dtype, weight)
    return one_op("lerp", {"X": x, "Y": y, "Weight": weight}, dtype=x.dtype, name=name)


def diagonal(
    x: Variable, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None
) -> Variable:
    """Return the diagonal of two axes as the last axis."""
    attrs = {"offset": offset, "axis1": axis1, "axis2": axis2}
    return unary("diagonal", x, attrs, name=name, slot="Input")


def isfinite(x: Variable, name: str | None = None) -> Variable:
    """Return, element by element, whether x is neither infinite nor NaN."""
    return unary("isfinite_v2", x, name=name, dtype="bool")


def isinf(x: Variable, name: str | None = None) -> Variable:
    """Return, element by element, whether x is infinite."""
    return unary("isinf_v2", x, name=name, dtype="bool")


def isnan(x: Variable, name: str | None = None) -> Variable:
    """Return, element by element, whether x is NaN."""
    return unary("isnan_v2", x, name=name, dtype="bool")


# -- along axes -----------------------------------------------------------------------------------
def sum(
    x: Variable, axis: Any = None, dtype: Any = None, keepdim: bool = False, name: Any = None
) -> Variable:
    """Return the sum over one axis, several, or all; bools and int32 are summed as int64."""
    if dtype is None and x.dtype in (VarType.BOOL, VarType.INT32):
        dtype = VarType.INT64
    return reduction("reduce_sum", x, axis, keepdim, name=name, layer="sum", dtype=dtype)


def prod(
    x: Variable, axis: Any = None, keepdim: bool = False, dtype: Any = None, name: Any = None
) -> Variable:
    """Return the product over one axis, several, or all."""
    return reduction("reduce_prod", x, axis, keepdim, name=name, layer="reduce_prod", dtype=dtype)


def _extreme(op_type: str, layer: str, what: str) -> Callable[..., Variable]:
    def function(
        x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None
    ) -> Variable:
        return reduction(op_type, x, axis, keepdim, name=name, layer=layer)

    function.__name__ = function.__qualname__ = layer
    function.__doc__ = f"Return {what} over one axis, several, or all."
    return function


max = _extreme("reduce_max", "max", "the largest element")
min = _extreme("reduce_min", "min", "the smallest element")
amax = _extreme("reduce_amax", "amax", "the largest element (gradients shared by equal ones)")
amin = _extreme("reduce_amin", "amin", "the smallest element (gradients shared by equal ones)")
all = _extreme("reduce_all", "all", "whether all elements are true")
any = _extreme("reduce_any", "any", "whether an element is true")


def logsumexp(x: Variable, axis: Any = None, keepdim: bool = False, name: Any = None) -> Variable:
    """Return log(sum(exp(x))) over one axis, several, or all."""
    axes = axis_list(axis)
    attrs = {"axis": axes or [0], "keepdim": keepdim, "reduce_all": not axes}
    return unary("logsumexp", x, attrs, name=name)


def count_nonzero(
    x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Return how many elements are not zero, over one axis, several, or all."""
    found = layers.cast(layers.cast(x, "bool"), "int64")
    return reduction("reduce_sum", found, axis, keepdim, name=name, layer="count_nonzero")


def nansum(
    x: Variable, axis: Any = None, dtype: Any = None, keepdim: bool = False, name: Any = None
) -> Variable:
    """Return the sum over one axis, several, or all, with NaN counted as zero."""
    numbers = one_op(
        "where",
        {"Condition": isnan(x), "X": layers.zeros_like(x), "Y": x},
        dtype=x.dtype,
    )
    return sum(numbers, axis, dtype, keepdim, name)


def _running(op_type: str, x: Variable, axis: Any, dtype: Any, name: Any) -> Variable:
    if dtype is not None and convert_dtype(dtype) != x.dtype:
        x = layers.cast(x, dtype)
    attrs = {"flatten": True} if axis is None else {"axis": axis, "flatten": False}
    return unary(op_type, x, attrs, name=name)


def cumsum(
    x: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Return the running sum along an axis, or over all elements in order."""
    return _running("cumsum", x, axis, dtype, name)


def logcumsumexp(
    x: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Return the running log(sum(exp(x))) along an axis, or over all elements in order."""
    return _running("logcumsumexp", x, axis, dtype, name)


def cumprod(
    x: Variable, dim: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Return the running product along an axis, or over all elements in order."""
    if dtype is not None and convert_dtype(dtype) != x.dtype:
        x = layers.cast(x, dtype)
    if dim is None:
        x, dim = layers.reshape(x, [-1]), 0
    return unary("cumprod", x, {"dim": dim}, name=name)


export_defined(globals())
