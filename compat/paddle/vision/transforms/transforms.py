"""Transforms of images."""

from fleetx.data.transforms import *  # noqa: F403
