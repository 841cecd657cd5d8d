"""Activation functions."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.one_op import one_op
from fleetx.static.building.spatial_variants import with_first
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.joining import split
from fleetx.static.layers.tensor import cast
from fleetx.static.nn.functional.emit import binary
from fleetx.static.tensor.common import unary


def _plain(type: str, x: Variable, name: str | None = None) -> Variable:
    return unary(type, x)


relu = with_first(_plain, "relu", "relu", doc="Return max(x, 0).")
sigmoid = with_first(_plain, "sigmoid", "sigmoid", doc="Return 1 / (1 + exp(-x)).")
tanh = with_first(_plain, "tanh", "tanh", doc="Return the hyperbolic tangent.")
tanhshrink = with_first(_plain, "tanhshrink", "tanh_shrink", doc="Return x - tanh(x).")
silu = with_first(_plain, "silu", "silu", doc="Return x sigmoid(x).")
mish = with_first(_plain, "mish", "mish", doc="Return x tanh(softplus(x)).")
softsign = with_first(_plain, "softsign", "softsign", doc="Return x / (1 + abs(x)).")


def relu6(x: Variable, name: str | None = None) -> Variable:
    """Return min(max(x, 0), 6)."""
    return unary("relu6", x, {"threshold": 6.0})


def leaky_relu(x: Variable, negative_slope: float = 0.01, name: str | None = None) -> Variable:
    """Return x where positive, negative_slope * x elsewhere."""
    return unary("leaky_relu", x, {"alpha": negative_slope})


def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """Return x where positive, alpha (exp(x) - 1) elsewhere."""
    return unary("elu", x, {"alpha": alpha})


def celu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """Return x where positive, alpha (exp(x / alpha) - 1) elsewhere."""
    if alpha == 0:
        raise ZeroDivisionError("alpha of celu must not be 0.")
    return unary("celu", x, {"alpha": alpha})


def selu(
    x: Variable,
    scale: float = 1.0507009873554804934193349852946,
    alpha: float = 1.6732632423543772848170429916717,
    name: str | None = None,
) -> Variable:
    """Return scale times elu(x, alpha)."""
    return unary("selu", x, {"scale": scale, "alpha": alpha})


def gelu(x: Variable, approximate: bool = False, name: str | None = None) -> Variable:
    """Return x times the normal CDF of x, or its tanh approximation."""
    return unary("gelu", x, {"approximate": approximate})


def hardswish(x: Variable, name: str | None = None) -> Variable:
    """Return x min(max(x + 3, 0), 6) / 6."""
    attrs = {"threshold": 6.0, "scale": 6.0, "offset": 3.0}
    return unary("hard_swish", x, attrs, layer="hardswish")


def hardsigmoid(
    x: Variable, slope: float = 0.1666667, offset: float = 0.5, name: str | None = None
) -> Variable:
    """Return slope * x + offset, clamped to [0, 1]."""
    return unary("hard_sigmoid", x, {"slope": slope, "offset": offset}, layer="hardsigmoid")


def hardtanh(x: Variable, min: float = -1.0, max: float = 1.0, name: str | None = None) -> Variable:
    """Return x, clamped to [min, max]."""
    return unary("brelu", x, {"t_min": min, "t_max": max}, layer="hardtanh")


def hardshrink(x: Variable, threshold: float = 0.5, name: str | None = None) -> Variable:
    """Return x, but zero between -threshold and threshold."""
    return unary("hard_shrink", x, {"threshold": threshold}, layer="hardshrink")


def softshrink(x: Variable, threshold: float = 0.5, name: str | None = None) -> Variable:
    """Shrink x towards zero by the threshold; smaller values become zero."""
    if threshold < 0:
        raise ValueError(f"threshold of softshrink must not be negative, but is {threshold}.")
    return unary("softshrink", x, {"lambda": threshold})


def thresholded_relu(x: Variable, threshold: float = 1.0, name: str | None = None) -> Variable:
    """Return x where greater than the threshold, zero elsewhere."""
    return unary("thresholded_relu", x, {"threshold": threshold})


def swish(x: Variable, name: str | None = None) -> Variable:
    """Return x sigmoid(x)."""
    return unary("swish", x, {"beta": 1.0})


def softplus(
    x: Variable, beta: float = 1, threshold: float = 20, name: str | None = None
) -> Variable:
    """Return log(1 + exp(beta x)) / beta, and x itself where beta x exceeds the threshold."""
    return unary("softplus", x, {"beta": float(beta), "threshold": float(threshold)})


def log_sigmoid(x: Variable, name: str | None = None) -> Variable:
    """Return log(sigmoid(x))."""
    return unary("logsigmoid", x, layer="log_sigmoid")


def prelu(
    x: Variable, weight: Variable, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Return x where positive, weight * x elsewhere; one weight, or one per channel."""
    mode = "all" if weight.shape[0] == 1 else "channel"
    attrs = {"mode": mode, "data_format": "NHWC" if data_format.endswith("C") else "NCHW"}
    return one_op("prelu", {"X": x, "Alpha": weight}, attrs, dtype=x.dtype)


def maxout(x: Variable, groups: int, axis: int = 1, name: str | None = None) -> Variable:
    """Return the maximum over each group of channels."""
    return unary("maxout", x, {"groups": groups, "axis": axis % len(x.shape)})


def softmax(x: Variable, axis: int = -1, dtype: Any = None, name: str | None = None) -> Variable:
    """Return the softmax along an axis."""
    x = x if dtype is None else cast(x, dtype)
    return unary("softmax", x, {"axis": axis, "use_cudnn": True})


def log_softmax(
    x: Variable, axis: int = -1, dtype: Any = None, name: str | None = None
) -> Variable:
    """Return the logarithm of softmax(x)."""
    x = x if dtype is None else cast(x, dtype)
    return unary("log_softmax", x, {"axis": axis})


def glu(x: Variable, axis: int = -1, name: str | None = None) -> Variable:
    """Return the first half of x times the sigmoid of the second half."""
    first, gate = split(x, 2, dim=axis)
    return binary("elementwise_mul", first, sigmoid(gate))


# A program's variables are never changed in place, so these are the same functions.
elu_, relu_, tanh_, softmax_ = elu, relu, tanh, softmax


export_defined(globals())
