"""Clipping of gradients and errors."""

from fleetx.static.clip import *  # noqa: F403
