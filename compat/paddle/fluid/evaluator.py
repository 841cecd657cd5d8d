"""Metrics whose counts are variables of a program."""

from fleetx.static.metrics.evaluators import *  # noqa: F403
