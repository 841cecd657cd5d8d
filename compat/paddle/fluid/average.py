"""Running averages."""

from fleetx.static.metrics.weighted_average import WeightedAverage
