"""Functions of tensors, applied to variables of a program."""

from fleetx.static.layers import array_length, array_read, array_write, create_array
from fleetx.static.tensor import *  # noqa: F403
from paddle.framework import set_printoptions
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
    to_string,
)
