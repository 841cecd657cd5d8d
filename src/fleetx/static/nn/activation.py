"""Activation layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetx.static.exports import export_defined
from fleetx.static.initializer import Constant
from fleetx.static.nn import functional as F
from fleetx.static.nn.layer import Layer
from fleetx.static.variable import Variable


class _Activation(Layer):
    """Calls one of the activation functions with what the constructor was given."""

    _function: Callable[..., Variable]

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._settings: tuple[Any, ...] = ()

    def forward(self, x: Variable) -> Variable:
        """Apply the function."""
        return type(self)._function(x, *self._settings)

    def extra_repr(self) -> str:
        """Return the settings."""
        return ", ".join(str(s) for s in self._settings)


class ReLU(_Activation):
    """max(x, 0)."""

    _function = staticmethod(F.relu)


class ReLU6(_Activation):
    """min(max(x, 0), 6)."""

    _function = staticmethod(F.relu6)


class Sigmoid(_Activation):
    """1 / (1 + exp(-x))."""

    _function = staticmethod(F.sigmoid)


class Tanh(_Activation):
    """The hyperbolic tangent."""

    _function = staticmethod(F.tanh)


class Hardswish(_Activation):
    """x min(max(x + 3, 0), 6) / 6."""

    _function = staticmethod(F.hardswish)


class Hardsigmoid(_Activation):
    """x / 6 + 1 / 2, kept between 0 and 1."""

    _function = staticmethod(F.hardsigmoid)


class Swish(_Activation):
    """x sigmoid(x)."""

    _function = staticmethod(F.swish)


class Silu(_Activation):
    """x sigmoid(x)."""

    _function = staticmethod(F.silu)


SiLU = Silu


class Mish(_Activation):
    """x tanh(softplus(x))."""

    _function = staticmethod(F.mish)


class Softsign(_Activation):
    """x / (1 + abs(x))."""

    _function = staticmethod(F.softsign)


class Tanhshrink(_Activation):
    """x - tanh(x)."""

    _function = staticmethod(F.tanhshrink)


class LogSigmoid(_Activation):
    """log(sigmoid(x))."""

    _function = staticmethod(F.log_sigmoid)


class LeakyReLU(_Activation):
    """x where positive, a small multiple of it elsewhere."""

    _function = staticmethod(F.leaky_relu)

    def __init__(self, negative_slope: float = 0.01, name: str | None = None) -> None:
        super().__init__()
        self._settings = (negative_slope,)


class ELU(_Activation):
    """x where positive, alpha (exp(x) - 1) elsewhere."""

    _function = staticmethod(F.elu)

    def __init__(self, alpha: float = 1.0, name: str | None = None) -> None:
        super().__init__()
        self._settings = (alpha,)


class CELU(_Activation):
    """x where positive, alpha (exp(x / alpha) - 1) elsewhere."""

    _function = staticmethod(F.celu)

    def __init__(self, alpha: float = 1.0, name: str | None = None) -> None:
        super().__init__()
        self._settings = (alpha,)


class SELU(_Activation):
    """A scaled ELU that keeps mean and variance."""

    _function = staticmethod(F.selu)

    def __init__(
        self,
        scale: float = 1.0507009873554804934193349852946,
        alpha: float = 1.6732632423543772848170429916717,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._settings = (scale, alpha)


class GELU(_Activation):
    """x times the normal distribution function of x."""

    _function = staticmethod(F.gelu)

    def __init__(self, approximate: bool = False, name: str | None = None) -> None:
        super().__init__()
        self._settings = (approximate,)


class GLU(_Activation):
    """The first half of x times the sigmoid of the second."""

    _function = staticmethod(F.glu)

    def __init__(self, axis: int = -1, name: str | None = None) -> None:
        super().__init__()
        self._settings = (axis,)


class Hardtanh(_Activation):
    """x, kept between min and max."""

    _function = staticmethod(F.hardtanh)

    def __init__(self, min: float = -1.0, max: float = 1.0, name: str | None = None) -> None:
        super().__init__()
        self._settings = (min, max)


class Hardshrink(_Activation):
    """x, but zero between -threshold and threshold."""

    _function = staticmethod(F.hardshrink)

    def __init__(self, threshold: float = 0.5, name: str | None = None) -> None:
        super().__init__()
        self._settings = (threshold,)


class Softshrink(_Activation):
    """x moved towards zero by the threshold."""

    _function = staticmethod(F.softshrink)

    def __init__(self, threshold: float = 0.5, name: str | None = None) -> None:
        super().__init__()
        self._settings = (threshold,)


class ThresholdedReLU(_Activation):
    """x where greater than the threshold, zero elsewhere."""

    _function = staticmethod(F.thresholded_relu)

    def __init__(self, threshold: float = 1.0, name: str | None = None) -> None:
        super().__init__()
        self._settings = (threshold,)


class Softplus(_Activation):
    """log(1 + exp(beta x)) / beta."""

    _function = staticmethod(F.softplus)

    def __init__(self, beta: float = 1, threshold: float = 20, name: str | None = None) -> None:
        super().__init__()
        self._settings = (beta, threshold)


class Softmax(_Activation):
    """Probabilities along an axis."""

    _function = staticmethod(F.softmax)

    def __init__(self, axis: int = -1, name: str | None = None) -> None:
        super().__init__()
        self._settings = (axis,)


class LogSoftmax(_Activation):
    """The logarithm of softmax."""

    _function = staticmethod(F.log_softmax)

    def __init__(self, axis: int = -1, name: str | None = None) -> None:
        super().__init__()
        self._settings = (axis,)


class Maxout(_Activation):
    """The maximum over groups of channels."""

    _function = staticmethod(F.maxout)

    def __init__(self, groups: int, axis: int = 1, name: str | None = None) -> None:
        super().__init__()
        self._settings = (groups, axis)


class PReLU(Layer):
    """x where positive, a learnt multiple of it elsewhere."""

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        weight_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._data_format = data_format
        self._weight = self.create_parameter(
            [num_parameters], attr=weight_attr, default_initializer=Constant(init)
        )

    def forward(self, x: Variable) -> Variable:
        """Apply the function."""
        return F.prelu(x, self._weight, self._data_format)


export_defined(globals())
