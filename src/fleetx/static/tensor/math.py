"""Arithmetic: element-wise functions of one and two tensors, reductions and scans."""

from __future__ import annotations

import functools
from math import pi
from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.building.adapted import adapted
from fleetx.static.building.argument_checks import check_variable_and_dtype
from fleetx.static.building.one_op import one_op
from fleetx.static.building.op_layer import op_layer
from fleetx.static.building.spatial_variants import of_op, with_first
from fleetx.static.graph.dtypes import VarType, convert_dtype
from fleetx.static.graph.variable import Variable
from fleetx.static.tensor.common import axis_list, binary, reduction, unary
from fleetx.static.tensor.linalg import matmul

_ELEMENTWISE = {
    "abs": "the absolute value",
    "acos": "the arc cosine",
    "acosh": "the inverse hyperbolic cosine",
    "asin": "the arc sine",
    "asinh": "the inverse hyperbolic sine",
    "atan": "the arc tangent",
    "atanh": "the inverse hyperbolic tangent",
    "ceil": "x rounded up to an integer",
    "cos": "the cosine",
    "cosh": "the hyperbolic cosine",
    "digamma": "the derivative of lgamma",
    "erf": "the error function",
    "erfinv": "the inverse of the error function",
    "exp": "e to the power of x",
    "expm1": "exp(x) - 1",
    "floor": "x rounded down to an integer",
    "lgamma": "the logarithm of the gamma function",
    "log": "the natural logarithm",
    "log10": "the logarithm to base 10",
    "log1p": "log(1 + x)",
    "log2": "the logarithm to base 2",
    "reciprocal": "1 / x",
    "round": "the nearest integer",
    "rsqrt": "1 / sqrt(x)",
    "sign": "-1, 0 or 1 by sign",
    "sin": "the sine",
    "sinh": "the hyperbolic sine",
    "sqrt": "the square root",
    "square": "x * x",
    "tan": "the tangent",
    "tanh": "the hyperbolic tangent",
    "trunc": "x rounded towards zero",
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
    "fmax": ("elementwise_fmax", "the larger one, NaN only if both are"),
    "fmin": ("elementwise_fmin", "the smaller one, NaN only if both are"),
    "heaviside": ("elementwise_heaviside", "0, y or 1 by the sign of x"),
}


def _elementwise(op_type: str, x: Variable, name: str | None = None) -> Variable:
    return unary(op_type, x, name=name)


def _pair(op_type: str, x: Variable, y: Any, name: str | None = None) -> Variable:
    return binary(op_type, x, y, {"axis": -1}, name=name)


_EACH = "Return {}, element-wise."
for _name, _what in _ELEMENTWISE.items():
    globals()[_name] = of_op(_elementwise, _name, _EACH.format(_what))
for _name, (_type, _what) in _PAIRS.items():
    globals()[_name] = with_first(_pair, _name, _type, doc=_EACH.format(_what))

mod = globals()["remainder"]
floor_mod = mod


scale = layers.scale
stanh = layers.stanh
_scaled = functools.partial(adapted, layers.scale, "x, name")
neg = _scaled(name="neg", doc="Return -x.", fixed={"scale": -1.0})
deg2rad = _scaled(
    name="deg2rad", doc="Convert angles from degrees to radians.", fixed={"scale": pi / 180}
)
rad2deg = _scaled(
    name="rad2deg", doc="Convert angles from radians to degrees.", fixed={"scale": 180 / pi}
)
tanh_ = with_first(
    _elementwise,
    "tanh_",
    "tanh",
    doc="Return the hyperbolic tangent; in a program nothing is changed in place.",
)
increment = adapted(
    layers.increment, "x, value, name", doc="Add a number to a one-element tensor in place."
)
add_n = adapted(layers.sum, "inputs -> x, name", name="add_n")
multiplex = adapted(layers.multiplex, "inputs, index, name")


@op_layer("X1=x X2=y")
def atan2(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return the angle of the point (y, x)."""


def pow(x: Variable, y: Any, name: str | None = None) -> Variable:
    """Return x to the power of a number or, element-wise, of a tensor."""
    if isinstance(y, int | float):
        return unary("pow", x, {"factor": float(y)}, name=name)
    return binary("elementwise_pow", x, y, {"axis": -1}, name=name)


def clip(x: Variable, min: Any = None, max: Any = None, name: str | None = None) -> Variable:
    """Clamp x to numbers or one-element tensors; None means no bound."""
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


def inner(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return the inner products over the last axes of both."""
    size = x.shape[-1]
    rows = matmul(layers.reshape(x, [-1, size]), layers.reshape(y, [-1, size]), transpose_y=True)
    shape = [*x.shape[:-1], *y.shape[:-1]]
    return layers.reshape(rows, shape or [1], name=name)


def outer(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return the outer product of x and y, flattened."""
    return layers.elementwise_mul(layers.reshape(x, [-1, 1]), layers.reshape(y, [1, -1]), name=name)


def lerp(x: Variable, y: Variable, weight: Any, name: str | None = None) -> Variable:
    """Return x + weight * (y - x)."""
    if not isinstance(weight, Variable):
        weight = layers.fill_constant([1], x.dtype, weight)
    return one_op("lerp", {"X": x, "Y": y, "Weight": weight}, dtype=x.dtype, name=name)


@op_layer("Input=x", x=Variable)
def diagonal(
    x: Variable, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None
) -> Variable:
    """Return the diagonal of two axes as the last axis."""


def _is(op_type: str, x: Variable, name: str | None = None) -> Variable:
    return unary(op_type, x, name=name, dtype="bool")


_WHETHER = "Return whether x is {}, element-wise."
isfinite = with_first(
    _is, "isfinite", "isfinite_v2", doc=_WHETHER.format("neither infinite nor NaN")
)
isinf = with_first(_is, "isinf", "isinf_v2", doc=_WHETHER.format("infinite"))
isnan = with_first(_is, "isnan", "isnan_v2", doc=_WHETHER.format("NaN"))


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


def _reduce(
    kind: str, x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    return reduction(f"reduce_{kind}", x, axis, keepdim, name=name, layer=kind)


_OVER = "Return {} over one axis, several, or all."
max = of_op(_reduce, "max", _OVER.format("the largest element"))
min = of_op(_reduce, "min", _OVER.format("the smallest element"))
amax = of_op(_reduce, "amax", _OVER.format("the largest element (equal ones share gradients)"))
amin = of_op(_reduce, "amin", _OVER.format("the smallest element (equal ones share gradients)"))
all = of_op(_reduce, "all", _OVER.format("whether all elements are true"))
any = of_op(_reduce, "any", _OVER.format("whether any element is true"))


def logsumexp(x: Variable, axis: Any = None, keepdim: bool = False, name: Any = None) -> Variable:
    """Return log(sum(exp(x))) over one axis, several, or all."""
    axes = axis_list(axis)
    attrs = {"axis": axes or [0], "keepdim": keepdim, "reduce_all": not axes}
    return unary("logsumexp", x, attrs, name=name)


def count_nonzero(
    x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Return the number of non-zero elements over one axis, several, or all."""
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


def _running(
    op_type: str,
    x: Variable,
    axis: int | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> Variable:
    if dtype is not None and convert_dtype(dtype) != x.dtype:
        x = layers.cast(x, dtype)
    attrs = {"flatten": True} if axis is None else {"axis": axis, "flatten": False}
    return unary(op_type, x, attrs, name=name)


_ALONG = "Return the cumulative {} along an axis, or over the flattened tensor."
cumsum = of_op(_running, "cumsum", _ALONG.format("sum"))
logcumsumexp = of_op(_running, "logcumsumexp", _ALONG.format("log(sum(exp(x)))"))


def cumprod(
    x: Variable, dim: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Return the cumulative product along an axis, or over the flattened tensor."""
    if dtype is not None and convert_dtype(dtype) != x.dtype:
        x = layers.cast(x, dtype)
    if dim is None:
        x, dim = layers.reshape(x, [-1]), 0
    return unary("cumprod", x, {"dim": dim}, name=name)


def conj(x: Variable, name: str | None = None) -> Variable:
    """Return the complex conjugate; real numbers are their own."""
    check_variable_and_dtype(
        x, "x", ["complex64", "complex128", "float32", "float64", "int32", "int64"], "conj"
    )
    return unary("conj", x, name=name)


export_defined(globals(), "scale", "stanh")
