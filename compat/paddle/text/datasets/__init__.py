"""Data sets of text by index, from local files."""

from fleetx.data.text_datasets import *  # noqa: F403
