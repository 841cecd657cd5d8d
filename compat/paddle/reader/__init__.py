"""Functions from readers to readers."""

from paddle._coverage import exported, missing
from paddle.reader import decorator
from paddle.reader.decorator import *  # noqa: F403

__all__ = exported(globals())
__getattr__ = missing(__name__)
