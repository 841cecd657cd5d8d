"""Initializers under the names and with the arguments of Paddle 2's `paddle.nn.initializer`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fleetx.exports import export_defined
from fleetx.static import initializer as base
from fleetx.static.building.argument_checks import check_choice
from fleetx.static.graph.block import Block
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Initializer
from fleetx.static.initializer import set_global_initializer as set_global_initializer

Bilinear = base.BilinearInitializer

_GAINS = {
    **dict.fromkeys(
        ("sigmoid", "linear", "conv1d", "conv2d", "conv3d", "conv1d_transpose")
        + ("conv2d_transpose", "conv3d_transpose"),
        1.0,
    ),
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the gain of a nonlinearity, by which the standard deviation is multiplied."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    check_choice(nonlinearity, "nonlinearity", [*_GAINS, "leaky_relu"], "calculate_gain")
    return _GAINS[nonlinearity]


class Constant(base.ConstantInitializer):
    """One value everywhere."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__(value)


class Uniform(base.UniformInitializer):
    """Samples uniformly from [low, high)."""

    def __init__(self, low: float = -1.0, high: float = 1.0, name: str | None = None) -> None:
        super().__init__(low, high)


class Normal(base.NormalInitializer):
    """Normally distributed values."""

    def __init__(self, mean: float = 0.0, std: float = 1.0, name: str | None = None) -> None:
        super().__init__(mean, std)


class TruncatedNormal(Normal, base.TruncatedNormalInitializer):
    """Samples from a normal distribution truncated at two standard deviations."""


class XavierUniform(base.XavierInitializer):
    """Uniform values with variance 2 / (fan_in + fan_out)."""

    _equally_likely = True

    def __init__(
        self, fan_in: float | None = None, fan_out: float | None = None, name: str | None = None
    ) -> None:
        super().__init__(self._equally_likely, fan_in, fan_out)


class XavierNormal(XavierUniform):
    """Normal values with variance 2 / (fan_in + fan_out)."""

    _equally_likely = False


class _Kaiming(base.MSRAInitializer):
    """Variance gain² / fan_in, with the gain of the nonlinearity."""

    _equally_likely: bool

    def __init__(
        self,
        fan_in: float | None = None,
        negative_slope: float = 0.0,
        nonlinearity: str = "relu",
    ) -> None:
        super().__init__(self._equally_likely, fan_in)
        self._gain = calculate_gain(nonlinearity, negative_slope)

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Add the op that samples the values."""
        fan_in = self._compute_fans(var)[0] if self._fan_in is None else self._fan_in
        return self._draw(var, block, 2.0 * fan_in / self._gain**2)


class KaimingUniform(_Kaiming):
    """Uniform values with variance gain² / fan_in."""

    _equally_likely = True


class KaimingNormal(_Kaiming):
    """Normal values with variance gain² / fan_in."""

    _equally_likely = False


class Assign(base.NumpyArrayInitializer):
    """The values of an array or a list."""

    def __init__(self, value: Any, name: str | None = None) -> None:
        if isinstance(value, Variable):
            raise TypeError("Assign takes an array or a list of numbers, not a Variable.")
        super().__init__(np.asarray(value))


class Dirac(Initializer):
    """Convolution filters that pass the first channels through unchanged."""

    def __init__(self, groups: int = 1, name: str | None = None) -> None:
        if not isinstance(groups, int) or groups < 1:
            raise ValueError(f"groups of Dirac must be a positive integer, not {groups!r}.")
        self._groups = groups

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Add an `assign_value` op."""
        shape = var.shape
        if len(shape) not in (3, 4, 5):
            raise ValueError(
                f"Dirac initializes filters with 3 to 5 dimensions, not of shape {shape}."
            )
        if shape[0] % self._groups:
            raise ValueError(f"{shape[0]} filters cannot be split into {self._groups} groups.")
        values = np.zeros(shape, dtype=np.float32)
        per_group = shape[0] // self._groups
        centre = tuple(size // 2 for size in shape[2:])
        for group in range(self._groups):
            for channel in range(min(per_group, shape[1])):
                values[(group * per_group + channel, channel, *centre)] = 1.0
        return base.NumpyArrayInitializer(values)(var, block)


export_defined(globals(), "Bilinear", "Initializer", "set_global_initializer")
