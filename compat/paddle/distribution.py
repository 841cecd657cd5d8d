"""Probability distributions."""

from fleetx.static.layers.distributions import Categorical, Distribution, Normal, Uniform

__all__ = ["Categorical", "Distribution", "Normal", "Uniform"]
