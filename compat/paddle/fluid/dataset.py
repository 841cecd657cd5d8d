"""Datasets of text files."""

from fleetx.static.readers.file_datasets import *  # noqa: F403
