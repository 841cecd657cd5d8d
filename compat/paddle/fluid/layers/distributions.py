"""Probability distributions."""

from fleetx.static.layers.distributions import Categorical, MultivariateNormalDiag, Normal, Uniform
from paddle._coverage import missing

__all__ = ["Categorical", "MultivariateNormalDiag", "Normal", "Uniform"]

__getattr__ = missing(__name__)
