"""Measures kept outside of programs."""

from fleetx.static.metrics.detection_map import *  # noqa: F403
from fleetx.static.metrics.metrics_of_1x import *  # noqa: F403
