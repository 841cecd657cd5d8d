"""Data sets of text."""

from paddle._coverage import exported
from paddle.text import datasets
from paddle.text.datasets import *  # noqa: F403

__all__ = exported(globals(), modules=True)
