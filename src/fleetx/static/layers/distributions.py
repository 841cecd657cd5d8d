"""Distributions whose samples, densities, entropies and divergences are computed by ops.

Parameters are numbers, lists, arrays or Variables; other than Variables are stored in the program
as float32. With Variables the batch size may be unknown until the program runs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.one_op import FLOATS
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.activations import exp, log
from fleetx.static.layers.compare import less_than
from fleetx.static.layers.creation import create_tensor, fill_constant_batch_size_like
from fleetx.static.layers.linalg import matmul
from fleetx.static.layers.math import elementwise_add, elementwise_mul, reduce_max, reduce_sum
from fleetx.static.layers.random import gaussian_random, uniform_random
from fleetx.static.layers.slicing import slice
from fleetx.static.layers.tensor import assign, cast, reshape, shape

__all__ = ["Categorical", "MultivariateNormalDiag", "Normal", "Uniform"]

_NUMBERS = (float, list, np.ndarray, Variable)


class Distribution:
    """Base of all distributions: how parameters become Variables of one shape."""

    def _parameters(self, **given: Any) -> list[Variable]:
        layer = type(self).__name__
        for name, value in given.items():
            check_type(value, name, _NUMBERS, layer)
        values = list(given.values())
        known = [isinstance(v, Variable) for v in values]
        if any(known) and not all(known):
            raise ValueError(
                f"the parameters of {layer} must all be Variables, or none: {', '.join(given)}."
            )
        if known[0]:
            return values
        arrays = [np.atleast_1d(np.asarray(v, dtype=np.float32)) for v in values]
        return [
            assign(np.ascontiguousarray(a), create_tensor("float32"))
            for a in np.broadcast_arrays(*arrays)
        ]

    def sample(self, shape: list[int], seed: int = 0) -> Variable:
        """Return samples."""
        raise NotImplementedError(f"{type(self).__name__} cannot be sampled.")

    def entropy(self) -> Variable:
        """Return the entropy."""
        raise NotImplementedError(f"{type(self).__name__} does not define its entropy.")

    def kl_divergence(self, other: Any) -> Variable:
        """Return the KL divergence from another distribution of the same kind."""
        raise NotImplementedError(f"{type(self).__name__} does not define a KL divergence.")

    def log_prob(self, value: Variable) -> Variable:
        """Return the log density at a value."""
        raise NotImplementedError(f"{type(self).__name__} does not define its density.")

    def probs(self, value: Variable) -> Variable:
        """Return the density at a value."""
        return exp(self.log_prob(value))


class _LocationScale(Distribution):
    """A location-scale distribution, sampled as first + width * noise."""

    def __init__(self, first: Any, second: Any, names: tuple[str, str]) -> None:
        self.all_arg_is_float = isinstance(first, float) and isinstance(second, float)
        self._first, self._second = self._parameters(
            **dict(zip(names, (first, second), strict=True))
        )

    def _noise(self, size: Any, seed: int) -> Variable:
        raise NotImplementedError

    def _width(self) -> Variable:
        raise NotImplementedError

    def sample(self, shape: list[int], seed: int = 0) -> Variable:
        """Return values of the given shape, followed by that of the parameters."""
        check_type(shape, "shape", list, "sample")
        check_type(seed, "seed", int, "sample")
        batch = elementwise_add(self._first, self._second)
        size: list[Any] = [*shape, *batch.shape]
        for i, d in enumerate(batch.shape):
            if d < 0:
                size[len(shape) + i] = _dimension(batch, i)
        # The parameters' dimensions are the last ones, which operators do not assume of a batch.
        drawn = elementwise_mul(self._noise(size, seed), self._width())
        drawn = elementwise_add(drawn, self._first)
        return reshape(drawn, shape) if self.all_arg_is_float else drawn


def _dimension(var: Variable, axis: int) -> Variable:
    return slice(shape(var), [0], [axis], [axis + 1])


class Uniform(_LocationScale):
    """The uniform distribution on [low, high)."""

    def __init__(self, low: Any, high: Any) -> None:
        super().__init__(low, high, ("low", "high"))
        self.low, self.high = self._first, self._second

    def _noise(self, size: Any, seed: int) -> Variable:
        return uniform_random(size, min=0.0, max=1.0, seed=seed)

    def _width(self) -> Variable:
        return self.high - self.low

    def log_prob(self, value: Variable) -> Variable:
        """Return -log(high - low) inside, minus infinity outside."""
        check_variable_and_dtype(value, "value", FLOATS, "log_prob")
        above = cast(less_than(self.low, value), value.dtype)
        below = cast(less_than(value, self.high), value.dtype)
        return log(above * below) - log(self.high - self.low)

    def entropy(self) -> Variable:
        """Return log(high - low)."""
        return log(self.high - self.low)


class Normal(_LocationScale):
    """The normal distribution with mean `loc` and standard deviation `scale`."""

    def __init__(self, loc: Any, scale: Any) -> None:
        super().__init__(loc, scale, ("loc", "scale"))
        self.loc, self.scale = self._first, self._second

    def _noise(self, size: Any, seed: int) -> Variable:
        return gaussian_random(size, mean=0.0, std=1.0, seed=seed)

    def _width(self) -> Variable:
        return self.scale

    def entropy(self) -> Variable:
        """Return log(scale * sqrt(2 pi e)), in the shape of both parameters."""
        both = elementwise_add(self.loc, self.scale)
        zeros = fill_constant_batch_size_like(both, list(both.shape), self.loc.dtype, 0.0)
        return log(zeros + self.scale) + (0.5 + 0.5 * math.log(2 * math.pi))

    def log_prob(self, value: Variable) -> Variable:
        """Return the log density."""
        check_variable_and_dtype(value, "value", FLOATS, "log_prob")
        distance = (value - self.loc) / self.scale
        return distance * distance * -0.5 - log(self.scale) - 0.5 * math.log(2 * math.pi)

    def kl_divergence(self, other: Any) -> Variable:
        """Return the KL divergence of two normal distributions."""
        check_type(other, "other", Normal, "kl_divergence")
        ratio = self.scale / other.scale
        ratio = ratio * ratio
        distance = (self.loc - other.loc) / other.scale
        return (ratio + distance * distance - 1.0 - log(ratio)) * 0.5


class Categorical(Distribution):
    """The categorical distribution with probabilities softmax(logits) over the last dimension."""

    def __init__(self, logits: Any) -> None:
        if isinstance(logits, float):
            raise TypeError(f"logits of Categorical is a vector, not the number {logits}.")
        (self.logits,) = self._parameters(logits=logits)

    def _parts(self) -> tuple[Variable, Variable]:
        """Return the log-probabilities and the probabilities."""
        shifted = self.logits - reduce_max(self.logits, dim=-1, keep_dim=True)
        powers = exp(shifted)
        total = reduce_sum(powers, dim=-1, keep_dim=True)
        return shifted - log(total), powers / total

    def entropy(self) -> Variable:
        """Return -sum(p log p) over the last dimension."""
        logarithms, chances = self._parts()
        return reduce_sum(chances * logarithms, dim=-1, keep_dim=True) * -1.0

    def kl_divergence(self, other: Any) -> Variable:
        """Return sum(p log(p / q)) over the last dimension."""
        check_type(other, "other", Categorical, "kl_divergence")
        (mine, chances), (theirs, _) = self._parts(), other._parts()
        return reduce_sum(chances * (mine - theirs), dim=-1, keep_dim=True)


class MultivariateNormalDiag(Distribution):
    """The multivariate normal distribution with a diagonal covariance matrix `scale`."""

    def __init__(self, loc: Any, scale: Any) -> None:
        if isinstance(loc, float) or isinstance(scale, float):
            raise TypeError("MultivariateNormalDiag takes a vector loc and a matrix scale.")
        self.loc, self.scale = (
            self._parameters(loc=loc)[0],
            self._parameters(scale=scale)[0],
        )
        if isinstance(loc, Variable) != isinstance(scale, Variable):
            raise ValueError("loc and scale must both be Variables, or none of them.")
        if len(self.scale.shape) != 2 or self.scale.shape[0] != self.scale.shape[1]:
            raise ArgumentError(f"scale must be a square matrix, not {self.scale.shape}.")

    def _diagonal(self) -> Variable:
        size = self.scale.shape[0]
        picked = assign(np.eye(size, dtype=np.float32)) * self.scale
        return reduce_sum(picked, dim=1)

    def entropy(self) -> Variable:
        """Return log(det(2 pi e scale)) / 2."""
        constant = self.scale.shape[0] * (1.0 + math.log(2 * math.pi))
        return (reduce_sum(log(self._diagonal())) + constant) * 0.5

    def kl_divergence(self, other: Any) -> Variable:
        """Return the KL divergence of two multivariate normal distributions."""
        check_type(other, "other", MultivariateNormalDiag, "kl_divergence")
        mine, theirs = self._diagonal(), other._diagonal()
        difference = other.loc - self.loc
        spread = reduce_sum(mine / theirs) - float(self.scale.shape[0])
        distance = matmul(difference / theirs, difference)
        logarithms = reduce_sum(log(theirs)) - reduce_sum(log(mine))
        return (spread + distance + logarithms) * 0.5
