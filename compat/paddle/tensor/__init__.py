"""Functions of tensors, applied to variables of a program."""

from fleetx.static.tensor import *  # noqa: F403
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
