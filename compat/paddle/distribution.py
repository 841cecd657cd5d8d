"""Probability distributions."""

from fleetx.static.layers.distributions import Distribution, Normal, Uniform
from fleetx.static.tensor.distribution import Categorical

__all__ = ["Categorical", "Distribution", "Normal", "Uniform"]
