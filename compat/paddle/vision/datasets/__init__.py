"""Data sets of images, from local files."""

from fleetx.data.vision_datasets import *  # noqa: F403
