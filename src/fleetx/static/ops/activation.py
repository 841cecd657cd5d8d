"""Functions of one tensor, element by element: activations, powers, trigonometry, rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fleetx import torch_private
from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import same_as

_hardtanh = torch_private.hardtanh


def _unary(name: str, function: Callable[..., Tensor], **options: Any) -> None:
    op(name, infer=same_as(), **options)(lambda x: function(x))


def _with(name: str, function: Callable[..., Tensor], **attrs: Any) -> None:
    """Register a function whose keyword arguments are the op's attributes."""
    op(name, attrs=attrs, infer=same_as())(function)


def _round(x: Tensor) -> Tensor:
    # Halves go away from zero, as C rounds; torch.round would take the even neighbour.
    whole = torch.trunc(x)
    return torch.where((x - whole).abs() >= 0.5, whole + torch.sign(x), whole)


for _name, _function in {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "log10": torch.log10,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "square": torch.square,
    "abs": torch.abs,
    "reciprocal": torch.reciprocal,
    "ceil": torch.ceil,
    "floor": torch.floor,
    "round": _round,
    "trunc": torch.trunc,
    "sign": torch.sign,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "erfinv": torch.erfinv,
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "tanh_shrink": F.tanhshrink,
    "silu": F.silu,
}.items():
    _unary(_name, _function, **({"attrs": {"use_cudnn": False}} if _name == "relu" else {}))


def _hard_swish(x: Tensor, *, threshold: float, scale: float, offset: float) -> Tensor:
    if threshold == 6.0 and scale == 6.0 and offset == 3.0:
        return F.hardswish(x)
    return x * _hardtanh(x + offset, 0.0, threshold) / scale


_with(
    "gelu",
    lambda x, *, approximate: F.gelu(x, approximate="tanh" if approximate else "none"),
    approximate=False,
)
_with("leaky_relu", lambda x, *, alpha: F.leaky_relu(x, alpha), alpha=0.02)
_with("elu", lambda x, *, alpha: F.elu(x, alpha), alpha=1.0)
_with("celu", lambda x, *, alpha: F.celu(x, alpha), alpha=1.0)
_with(
    "selu",
    lambda x, *, scale, alpha: torch_private.elu(x, alpha, scale),
    scale=1.0507009873554805,
    alpha=1.6732632423543772,
)
_with("relu6", lambda x, *, threshold: _hardtanh(x, 0.0, threshold), threshold=6.0)
_with("brelu", lambda x, *, t_min, t_max: _hardtanh(x, t_min, t_max), t_min=0.0, t_max=24.0)
_with(
    "soft_relu",
    lambda x, *, threshold: torch.log1p(torch.exp(_hardtanh(x, -threshold, threshold))),
    threshold=40.0,
)
_with(
    "softplus",
    lambda x, *, beta, threshold: F.softplus(x, beta, threshold),
    beta=1.0,
    threshold=20.0,
)
_with("hard_shrink", lambda x, *, threshold: F.hardshrink(x, threshold), threshold=0.5)
_with(
    "hard_sigmoid",
    lambda x, *, slope, offset: _hardtanh(x * slope + offset, 0.0, 1.0),
    slope=0.2,
    offset=0.5,
)
_with("hard_swish", _hard_swish, threshold=6.0, scale=6.0, offset=3.0)
_with(
    "swish", lambda x, *, beta: F.silu(x) if beta == 1.0 else x * torch.sigmoid(x * beta), beta=1.0
)


def _mish(x: Tensor, *, threshold: float) -> Tensor:
    """Return x tanh(softplus(x)); beyond +-threshold softplus is x or exp(x).

    The gradient takes 1 - exp(-softplus(x)) as the derivative of softplus on both sides.
    """
    if threshold >= 20.0:  # no difference in float32
        return x * torch.tanh(F.softplus(x, 1.0, threshold))
    at = x.detach()
    soft = torch.where(at > threshold, at, torch.where(at < -threshold, at.exp(), F.softplus(at)))
    return x * torch.tanh(soft + (x - at) * -torch.expm1(-soft))


_with("mish", _mish, threshold=20.0)
_with(
    "stanh",
    lambda x, *, scale_a, scale_b: torch.tanh(x * scale_a) * scale_b,
    scale_a=0.67,
    scale_b=1.7159,
)
_with("thresholded_relu", lambda x, *, threshold: F.threshold(x, threshold, 0.0), threshold=1.0)
_with("logit", lambda x, *, eps: torch.logit(x, eps or None), eps=1e-6)


@op("softshrink", attrs={"lambda": 0.5}, infer=same_as())
def softshrink(x: Tensor, **attrs: float) -> Tensor:
    """X moved towards zero by lambda, zero within it."""
    # `lambda` is a keyword of Python, so it cannot be a parameter's name.
    return F.softshrink(x, attrs["lambda"])


@op("pow", inputs="X FactorTensor?!", infer=same_as())
def pow_(x: Tensor, factor_tensor: Tensor | None, *, factor: float = 1.0) -> Tensor:
    """X to the power of `factor`."""
    if factor_tensor is not None:
        return torch.pow(x, factor_tensor.to(x.dtype))
    return torch.pow(x, factor if x.is_floating_point() else int(factor))


@op("prelu", inputs="X Alpha", infer=same_as())
def prelu(x: Tensor, alpha: Tensor, *, mode: str = "all", data_format: str = "NCHW") -> Tensor:
    """X where positive, Alpha * X elsewhere; one Alpha for all, per channel or per element."""
    if mode == "all":
        slope = alpha.reshape((1,) * x.dim())
    elif mode == "channel":
        slope = alpha.reshape(-1)
        if data_format != "NHWC":
            slope = slope.reshape((1, -1) + (1,) * (x.dim() - 2))
    else:
        slope = alpha.reshape((1, *x.shape[1:]))
    return torch.where(x > 0, x, slope * x)


@op("maxout")
def maxout(x: Tensor, *, groups: int = 1, axis: int = 1) -> Tensor:
    """The largest of each `groups` neighbouring channels."""
    return x.unflatten(axis, (-1, groups)).amax(axis % x.dim() + 1)


# -- complex numbers -----------------------------------------------------------------------------
# Results are numbers of their own, not views that conjugate or select later.
op("conj")(lambda x: torch.conj_physical(x))
op("real")(lambda x: torch.real(x).clone())
op("imag")(lambda x: torch.imag(x).clone())
