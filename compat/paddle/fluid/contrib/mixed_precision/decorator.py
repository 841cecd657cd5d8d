"""Training in half precision."""

from fleetx.static.mixed_precision import OptimizerWithMixedPrecision, decorate
from paddle._coverage import missing

__all__ = ["OptimizerWithMixedPrecision", "decorate"]

__getattr__ = missing(__name__)
