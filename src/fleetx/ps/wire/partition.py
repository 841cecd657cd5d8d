"""Partitioning over servers: slices of dense parameters, and ids of sparse tables.

Slicing follows Paddle: a parameter is split into at most one block per server, each of at least
`min_block_size` elements and of whole rows, named `<parameter>.block<i>`. Blocks are assigned to
servers round-robin, or by a hash of their names (a stable one; Paddle's differs between processes).
If an update needs a parameter's norm (LARS, LAMB, clipping by norm), it must not be sliced. Ids are
assigned by a hash of the id, so that ids with a pattern are also distributed evenly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from fleetx.kernels import native
from fleetx.kernels.index import check_ids
from fleetx.ps.tables.table_spec import name_seed

MIN_BLOCK_SIZE = 8192

Block = TypeVar("Block", bound="_Named")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class Slice:
    """Whole rows of a parameter: elements start, … of the flat parameter, in this shape."""

    name: str
    parameter: str
    start: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def of(self, parameter: Tensor) -> Tensor:
        """Return this part of the whole parameter, as a view if its memory permits."""
        return parameter.reshape(-1)[self.start : self.start + self.size].reshape(self.shape)


def slice_parameter(
    name: str,
    shape: Sequence[int],
    *,
    servers: int,
    slice_var_up: bool = True,
    min_block_size: int = MIN_BLOCK_SIZE,
) -> list[Slice]:
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
        return [Slice(name, name, 0, shape)]
    width = math.prod(shape[1:])
    rows = math.ceil(math.ceil(size / pieces) / width)
    return [
        Slice(
            f"{name}.block{number}",
            name,
            start * width,
            (min(rows, shape[0] - start), *shape[1:]),
        )
        for number, start in enumerate(range(0, shape[0], rows))
    ]


class RoundRobin:
    """Assignment of blocks to servers in turn."""

    def __init__(self, servers: int) -> None:
        self._servers = _at_least_one(servers)
        self._next = 0

    def dispatch(self, names: Iterable[str]) -> list[int]:
        """Return the server of every block."""
        found = []
        for _ in names:
            found.append(self._next)
            self._next = (self._next + 1) % self._servers
        return found

    def reset(self) -> None:
        """Start with the first server again."""
        self._next = 0


class HashName:
    """Assignment of blocks to servers by a hash of their names."""

    def __init__(self, servers: int) -> None:
        self._servers = _at_least_one(servers)

    def dispatch(self, names: Iterable[str]) -> list[int]:
        """Return the server of every block."""
        return [name_seed(name) % self._servers for name in names]

    def reset(self) -> None:
        """Do nothing: there is no state."""


def _at_least_one(servers: int) -> int:
    if servers < 1:
        raise ValueError(f"blocks need at least one server, not {servers}.")
    return servers


def spread(blocks: Iterable[Block], servers: int) -> list[list[Block]]:
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
