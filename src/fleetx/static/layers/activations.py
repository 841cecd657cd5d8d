"""Activations: layers of one op, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_dtype, check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import FLOATS, NUMBERS, one_op
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant


def _plain(op_type: str) -> Callable[..., Variable]:
    allowed = NUMBERS if op_type in ("abs", "exp", "square") else FLOATS

    def layer(x: Variable, name: str | None = None) -> Variable:
        check_variable_and_dtype(x, "x", allowed, op_type)
        return one_op(op_type, {"X": x}, dtype=x.dtype, name=name)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"Apply `{op_type}` to each element of x."
    return layer


sigmoid = _plain("sigmoid")
logsigmoid = _plain("logsigmoid")
exp = _plain("exp")
tanh = _plain("tanh")
atan = _plain("atan")
tanh_shrink = _plain("tanh_shrink")
sqrt = _plain("sqrt")
rsqrt = _plain("rsqrt")
abs = _plain("abs")
ceil = _plain("ceil")
floor = _plain("floor")
cos = _plain("cos")
acos = _plain("acos")
asin = _plain("asin")
sin = _plain("sin")
round = _plain("round")
reciprocal = _plain("reciprocal")
square = _plain("square")
softplus = _plain("softplus")
softsign = _plain("softsign")
relu = _plain("relu")
log = _plain("log")
sinh = _plain("sinh")
cosh = _plain("cosh")
tan = _plain("tan")
silu = _plain("silu")
expm1 = _plain("expm1")
log2 = _plain("log2")
log10 = _plain("log10")


def _with_attrs(op_type: str, x: Variable, attrs: dict[str, Any], name: str | None) -> Variable:
    """Append an activation; attributes that are None keep the op's default."""
    check_variable_and_dtype(x, "x", FLOATS, op_type)
    given = {k: v for k, v in attrs.items() if v is not None}
    return one_op(op_type, {"X": x}, given, dtype=x.dtype, name=name)


def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """Return x where positive, alpha * (exp(x) - 1) elsewhere."""
    return _with_attrs("elu", x, {"alpha": float(alpha)}, name)


def relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Variable:
    """Return x limited to 0..threshold."""
    return _with_attrs("relu6", x, {"threshold": float(threshold)}, name)


def brelu(
    x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None
) -> Variable:
    """Return x limited to t_min..t_max."""
    return _with_attrs("brelu", x, {"t_min": float(t_min), "t_max": float(t_max)}, name)


def leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """Return x where positive, alpha * x elsewhere."""
    return _with_attrs("leaky_relu", x, {"alpha": float(alpha)}, name)


def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """Return log(1 + exp(x)) with x limited to -threshold..threshold."""
    return _with_attrs("soft_relu", x, {"threshold": float(threshold)}, name)


def selu(
    x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None
) -> Variable:
    """Return the self-normalizing ELU."""
    return _with_attrs("selu", x, {"scale": scale, "alpha": alpha}, name)


def stanh(
    x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None
) -> Variable:
    """Return scale_b * tanh(scale_a * x)."""
    return _with_attrs("stanh", x, {"scale_a": scale_a, "scale_b": scale_b}, name)


def hard_sigmoid(
    x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None
) -> Variable:
    """Return slope * x + offset limited to 0..1."""
    return _with_attrs("hard_sigmoid", x, {"slope": slope, "offset": offset}, name)


def hard_swish(
    x: Variable,
    threshold: float = 6.0,
    scale: float = 6.0,
    offset: float = 3.0,
    name: str | None = None,
) -> Variable:
    """Return x * min(max(0, x + offset), threshold) / scale."""
    attrs = {"threshold": float(threshold), "scale": float(scale), "offset": float(offset)}
    return _with_attrs("hard_swish", x, attrs, name)


def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Variable:
    """Return x * sigmoid(beta * x)."""
    return _with_attrs("swish", x, {"beta": float(beta)}, name)


def mish(x: Variable, threshold: float = 20, name: str | None = None) -> Variable:
    """Return x * tanh(softplus(x))."""
    check_type(threshold, "threshold", (float, int), "mish")
    if threshold <= 0:
        raise ArgumentError(f"threshold of mish must be greater than 0, not {threshold}.")
    return _with_attrs("mish", x, {"threshold": float(threshold)}, name)


def softshrink(x: Variable, alpha: float | None = None) -> Variable:
    """Return x moved towards zero by alpha, zero within it."""
    return _with_attrs("softshrink", x, {"lambda": alpha}, None)


def hard_shrink(x: Variable, threshold: float | None = None) -> Variable:
    """Return x, but zero where it is within the threshold."""
    return _with_attrs("hard_shrink", x, {"threshold": threshold}, None)


def thresholded_relu(x: Variable, threshold: float | None = None) -> Variable:
    """Return x where it is above the threshold, zero elsewhere."""
    return _with_attrs("thresholded_relu", x, {"threshold": threshold}, None)


def gelu(x: Variable, approximate: bool = False) -> Variable:
    """Return x times the normal distribution function of x, exactly or by tanh."""
    return _with_attrs("gelu", x, {"approximate": bool(approximate)}, None)


def erf(x: Variable) -> Variable:
    """Return the error function of x."""
    return _with_attrs("erf", x, {}, None)


def log1p(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Return log(1 + x)."""
    check_variable_and_dtype(x, "x", FLOATS, "log1p")
    return one_op("log1p", {"X": x}, dtype=x.dtype, name=name, out=out)


def pow(x: Variable, factor: Any = 1.0, name: str | None = None) -> Variable:
    """Return x to the power of a number or of a Variable with one element."""
    check_variable_and_dtype(x, "x", NUMBERS, "pow")
    inputs, attrs = {"X": x}, {}
    if isinstance(factor, Variable):
        check_variable_and_dtype(factor, "factor", ("float32",), "pow")
        factor.stop_gradient = True
        inputs["FactorTensor"] = factor
    else:
        attrs["factor"] = float(factor)
    return one_op("pow", inputs, attrs, dtype=x.dtype, name=name)


def sign(x: Any) -> Variable:
    """Return -1, 0 or 1 for each element."""
    from fleetx.static.layers.tensor import assign

    helper = LayerHelper("sign")
    check_type(x, "x", (Variable, np.ndarray), "sign")
    if isinstance(x, np.ndarray):
        x = assign(x)
    check_dtype(x.dtype, "x", FLOATS, "sign")
    return helper.output_of("sign", {"X": [x]}, dtype=x.dtype)


def prelu(x: Variable, mode: str, param_attr: Any = None, name: str | None = None) -> Variable:
    """Return x where positive, a slope times x elsewhere.

    The slope is learned: one for 'all', one per 'channel' or one per 'element'.
    """
    check_variable_and_dtype(x, "x", FLOATS, "prelu")
    helper = LayerHelper("prelu", param_attr=param_attr, name=name)
    if mode not in ("all", "channel", "element"):
        raise ValueError(f"mode of prelu must be one of all, channel, element, not {mode!r}.")
    shape = [1]
    if mode == "channel":
        if len(x.shape) < 2:
            raise ArgumentError(f"prelu by channel needs 2 dimensions or more, not {x.shape}.")
        shape = [1, x.shape[1], 1, 1]
    elif mode == "element":
        shape = [1, *x.shape[1:]]
    alpha = helper.create_parameter(
        helper.param_attr, shape, "float32", default_initializer=Constant(0.25)
    )
    return helper.output_of("prelu", {"X": x, "Alpha": alpha}, {"mode": mode}, dtype=x.dtype)


def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """Return the largest of each `groups` neighbouring channels."""
    check_variable_and_dtype(x, "x", FLOATS, "maxout")
    if axis not in (1, -1, 3):
        raise ValueError(f"axis of maxout must be 1 for NCHW, -1 or 3 for NHWC, not {axis}.")
    attrs = {"groups": groups, "axis": 3 if axis == -1 else axis}
    return one_op("maxout", {"X": x}, attrs, dtype=x.dtype, name=name)


export_defined(globals())
