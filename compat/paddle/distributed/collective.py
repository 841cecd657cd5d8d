"""Collective functions on variables of a program."""

from fleetx.static.layers.collective import (
    ReduceOp,
    all_gather,
    all_reduce,
    barrier,
    broadcast,
    reduce,
    scatter,
)
from fleetx.static.nn.divided import split
