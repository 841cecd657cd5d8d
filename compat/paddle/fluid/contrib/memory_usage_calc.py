"""What the variables of a program take."""

from fleetx.static.inspection.statistics import memory_usage
