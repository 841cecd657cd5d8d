"""Datasets of text files."""

from fleetx.static.readers.text_datasets import *  # noqa: F403
