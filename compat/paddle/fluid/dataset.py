"""Datasets of text files."""

from fleetx.static.dataset_feed import *  # noqa: F403
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
