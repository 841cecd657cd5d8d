"""Activations: layers of one op, element by element."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import (
    check_dtype,
    check_type,
    check_variable_and_dtype,
    one_of,
)
from fleetx.static.building.constants import array_constant
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import FLOATS, NUMBERS, one_op
from fleetx.static.building.op_layer import changed, checked, op_layer
from fleetx.static.building.spatial_variants import of_op
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant


def _plain(op: str, x: Variable, name: str | None = None) -> Variable:
    """Apply `{op}` to each element of x."""
    allowed = NUMBERS if op in ("abs", "exp", "square") else FLOATS
    check_variable_and_dtype(x, "x", allowed, op)
    return one_op(op, {"X": x}, dtype=x.dtype, name=name)


sigmoid = of_op(_plain, "sigmoid")
logsigmoid = of_op(_plain, "logsigmoid")
exp = of_op(_plain, "exp")
tanh = of_op(_plain, "tanh")
atan = of_op(_plain, "atan")
tanh_shrink = of_op(_plain, "tanh_shrink")
sqrt = of_op(_plain, "sqrt")
rsqrt = of_op(_plain, "rsqrt")
abs = of_op(_plain, "abs")
ceil = of_op(_plain, "ceil")
floor = of_op(_plain, "floor")
cos = of_op(_plain, "cos")
acos = of_op(_plain, "acos")
asin = of_op(_plain, "asin")
sin = of_op(_plain, "sin")
round = of_op(_plain, "round")
reciprocal = of_op(_plain, "reciprocal")
square = of_op(_plain, "square")
softplus = of_op(_plain, "softplus")
softsign = of_op(_plain, "softsign")
relu = of_op(_plain, "relu")
log = of_op(_plain, "log")
sinh = of_op(_plain, "sinh")
cosh = of_op(_plain, "cosh")
tan = of_op(_plain, "tan")
silu = of_op(_plain, "silu")
expm1 = of_op(_plain, "expm1")
log2 = of_op(_plain, "log2")
log10 = of_op(_plain, "log10")


# A layer from X to Out, for floating-point numbers.
_activation = functools.partial(op_layer, "x", x=FLOATS)


@_activation()
def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """Return x where positive, alpha * (exp(x) - 1) elsewhere."""


@_activation()
def relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Variable:
    """Clamp x to [0, threshold]."""


@_activation()
def brelu(
    x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None
) -> Variable:
    """Clamp x to [t_min, t_max]."""


@_activation()
def leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """Return x where positive, alpha * x elsewhere."""


@_activation()
def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """Return log(1 + exp(x)) with x clamped to [-threshold, threshold]."""


@_activation()
def selu(
    x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None
) -> Variable:
    """Return the self-normalizing ELU."""


@_activation()
def stanh(
    x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None
) -> Variable:
    """Return scale_b * tanh(scale_a * x)."""


@_activation()
def hard_sigmoid(
    x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None
) -> Variable:
    """Return slope * x + offset, clamped to [0, 1]."""


@_activation()
def hard_swish(
    x: Variable,
    threshold: float = 6.0,
    scale: float = 6.0,
    offset: float = 3.0,
    name: str | None = None,
) -> Variable:
    """Return x * min(max(0, x + offset), threshold) / scale."""


@_activation()
def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Variable:
    """Return x * sigmoid(beta * x)."""


def _check_threshold(value: Any, name: str, layer: str) -> None:
    check_type(value, name, (float, int), layer)
    if value <= 0:
        raise ArgumentError(f"{name} of {layer} must be greater than 0, not {value}.")


@_activation(threshold=_check_threshold)
def mish(x: Variable, threshold: float = 20, name: str | None = None) -> Variable:
    """Return x * tanh(softplus(x))."""


@_activation(attrs={"lambda": "alpha"})
def softshrink(x: Variable, alpha: float | None = None) -> Variable:
    """Shrink x towards zero by alpha; zero if |x| <= alpha."""


@_activation()
def hard_shrink(x: Variable, threshold: float | None = None) -> Variable:
    """Return x where |x| > threshold, zero elsewhere."""


@_activation()
def thresholded_relu(x: Variable, threshold: float | None = None) -> Variable:
    """Return x where it is above the threshold, zero elsewhere."""


@_activation()
def gelu(x: Variable, approximate: bool = False) -> Variable:
    """Return x times the standard normal CDF of x, exact or approximated by tanh."""
    return changed(approximate=bool(approximate))


@_activation()
def erf(x: Variable) -> Variable:
    """Return the error function of x."""


@_activation()
def log1p(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Return log(1 + x)."""


@op_layer("x", tensors="FactorTensor=factor", no_grad="FactorTensor", x=NUMBERS)
def pow(x: Variable, factor: Any = 1.0, name: str | None = None) -> Variable:
    """Return x to the power of a number or of a Variable with one element."""
    if isinstance(factor, Variable):
        check_variable_and_dtype(factor, "factor", ("float32",), "pow")
    return changed(factor=factor if isinstance(factor, Variable) else float(factor))


@op_layer("x", x=Variable | np.ndarray)
def sign(x: Any) -> Variable:
    """Return -1, 0 or 1 for each element."""
    x = array_constant(x) if isinstance(x, np.ndarray) else x
    check_dtype(x.dtype, "x", FLOATS, "sign")
    return changed(x=x)


@checked(x=FLOATS, mode=one_of("all", "channel", "element"))
def prelu(x: Variable, mode: str, param_attr: Any = None, name: str | None = None) -> Variable:
    """Return x where positive, a slope times x elsewhere.

    The slope is learned: one for 'all', one per 'channel' or one per 'element'.
    """
    helper = LayerHelper("prelu", param_attr=param_attr, name=name)
    shape = [1]
    if mode == "channel":
        if len(x.shape) < 2:
            raise ArgumentError(f"prelu by channel needs 2 dimensions or more, not {x.shape}.")
        shape = [1, x.shape[1], 1, 1]
    elif mode == "element":
        shape = [1, *x.shape[1:]]
    alpha = helper.weight(shape, "float32", Constant(0.25))
    return helper.output_of("prelu", {"X": x, "Alpha": alpha}, {"mode": mode}, dtype=x.dtype)


@_activation()
def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """Return the maximum of each `groups` neighbouring channels."""
    if axis not in (1, -1, 3):
        raise ValueError(f"axis of maxout must be 1 for NCHW, -1 or 3 for NHWC, not {axis}.")
    return changed(axis=3 if axis == -1 else axis)


export_defined(globals())
