"""Layers: functions that append ops to the default main program and return Variables."""

# One line per module, each with an `__all__`.
from fleetx.static.layers.io import *  # noqa: F403
