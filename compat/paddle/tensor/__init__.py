"""Functions of tensors, applied to variables of a program."""

from fleetx.static.tensor import *  # noqa: F403
from fleetx.static.tensor import __all__ as _names
from paddle._coverage import missing
from paddle.tensor import (
    attribute,
    creation,
    linalg,
    logic,
    manipulation,
    math,
    random,
    search,
    stat,
)

__all__ = [*_names]

__getattr__ = missing(__name__)
