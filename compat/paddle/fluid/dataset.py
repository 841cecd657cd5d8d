"""Datasets of text files."""

from fleetx.static.readers.text_datasets import *  # noqa: F403
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
