"""Measures kept outside of programs."""

from fleetx.static.metrics.metrics_of_1x import *  # noqa: F403
