"""Partitioning over servers: slices of dense parameters, and ids of sparse tables.

Slicing follows Paddle: a parameter is split into at most one block per server, each of at least
`min_block_size` elements and of whole rows, named `<parameter>.block<i>`. Blocks are assigned to
servers round-robin, or by a hash of their names (a stable one; Paddle's differs between processes).
If an update needs a parameter's norm (LARS, LAMB, clipping by norm), it must not be sliced. Ids are
assigned by a hash of the id, so that ids with a pattern are also distributed evenly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fleetx.kernels import native
from fleetx.kernels.index import check_ids
from fleetx.ps.tables.table_spec import BlockSpec, name_seed

MIN_BLOCK_SIZE = 8192


def slice_parameter(
    name: str,
    shape: Sequence[int],
    *,
    servers: int,
    slice_var_up: bool = True,
    min_block_size: int = MIN_BLOCK_SIZE,
) -> list[BlockSpec]:
    """Split a parameter into blocks; one that stays whole keeps its name."""
    if servers < 1 or min_block_size < 1:
        raise ValueError(
            f"a parameter cannot be split for {servers} servers into blocks of {min_block_size} "
            "elements: both numbers must be at least 1."
        )
    shape = tuple(shape)
    size = math.prod(shape)
    pieces = min(servers, max(1, size // min_block_size)) if slice_var_up else 1
    if pieces == 1:
        return [BlockSpec(name=name, parameter=name, shape=shape)]
    width = math.prod(shape[1:])
    rows = math.ceil(math.ceil(size / pieces) / width)
    return [
        BlockSpec(
            name=f"{name}.block{number}",
            parameter=name,
            shape=(min(rows, shape[0] - start), *shape[1:]),
            start=start * width,
        )
        for number, start in enumerate(range(0, shape[0], rows))
    ]


class RoundRobin:
    """Assignment of blocks to servers in turn."""

    def __init__(self, servers: int) -> None:
        self._turns = itertools.cycle(range(_at_least_one(servers)))

    def dispatch(self, names: Iterable[str]) -> list[int]:
        """Return the server of every block."""
        return [next(self._turns) for _ in names]


class HashName:
    """Assignment of blocks to servers by a hash of their names."""

    def __init__(self, servers: int) -> None:
        self._servers = _at_least_one(servers)

    def dispatch(self, names: Iterable[str]) -> list[int]:
        """Return the server of every block."""
        return [name_seed(name) % self._servers for name in names]


def _at_least_one(servers: int) -> int:
    if servers < 1:
        raise ValueError(f"blocks need at least one server, not {servers}.")
    return servers


def spread(blocks: Iterable[BlockSpec], servers: int) -> list[list[BlockSpec]]:
    """Assign existing blocks to another number of servers, in the order of their names."""
    ordered = sorted(blocks, key=lambda block: block.name)
    return [ordered[server::servers] for server in range(servers)]


def servers_of_ids(ids: Tensor, servers: int) -> Tensor:
    """Return the index of the server that holds each id."""
    ids = check_ids(ids)
    found = torch.empty_like(ids)
    native.route(ids.numpy(), servers, found.numpy())
    return found


def split_ids(ids: Tensor, servers: int) -> list[Tensor]:
    """Return the positions of each server's ids, in order."""
    ids = check_ids(ids)
    order, counts = torch.empty_like(ids), torch.empty(servers, dtype=torch.int64)
    native.split(ids.numpy(), order.numpy(), counts.numpy())
    return list(order.split(counts.tolist()))
