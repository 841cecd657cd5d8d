"""The size of a network."""

from fleetx.static.inspection.statistics import summary
