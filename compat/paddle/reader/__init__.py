"""Functions from readers to readers."""

from paddle.reader import decorator
from paddle.reader.decorator import *  # noqa: F403
