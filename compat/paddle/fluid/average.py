"""Running averages."""

from fleetx.static.metrics.weighted_average import WeightedAverage
from paddle._coverage import missing

__all__ = ["WeightedAverage"]

__getattr__ = missing(__name__)
