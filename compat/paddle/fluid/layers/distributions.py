"""Probability distributions."""

from fleetx.static.layers.distributions import Categorical, MultivariateNormalDiag, Normal, Uniform

__all__ = ["Categorical", "MultivariateNormalDiag", "Normal", "Uniform"]
