"""The parallel layout of a job: degrees of parallelism, and the groups that follow from them.

Workers that communicate most are neighbours: ranks count through the parts of a layer (mp) first,
then through shards, pipeline stages (pp) and copies of the model (dp). Launchers number the workers
of a machine consecutively, so that it is copies that are on different machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Protocol

import torch.distributed as dist
from torch import Tensor

from fleetx.comm import world

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

AXES = ("dp", "pp", "sharding", "mp")
"""The dimensions of a job, from the least to the most communication."""


@dataclass(frozen=True, kw_only=True)
class Degrees:
    """The number of workers along each dimension."""

    dp: int = 1
    """Copies of the model."""
    pp: int = 1
    """Stages of the pipeline."""
    sharding: int = 1
    """Workers that divide the state of one copy, or of one stage of it."""
    mp: int = 1
    """Workers that divide layers."""

    @property
    def workers(self) -> int:
        """The number of workers that these degrees need."""
        return prod(getattr(self, axis) for axis in AXES)

    def place(self, rank: int) -> dict[str, int]:
        """Return the coordinates of a worker in each dimension."""
        found: dict[str, int] = {}
        for axis in reversed(AXES):
            rank, found[axis] = divmod(rank, getattr(self, axis))
        return found

    def groups(self, axes: Sequence[str]) -> list[list[int]]:
        """Return the workers that differ along some dimensions only, for all places in others."""
        sizes = {axis: range(getattr(self, axis)) for axis in AXES}
        rest = [axis for axis in AXES if axis not in axes]
        found = []
        for fixed in product(*(sizes[axis] for axis in rest)):
            where = dict(zip(rest, fixed, strict=True))
            inside = [axis for axis in AXES if axis in axes]
            members = product(*(sizes[axis] for axis in inside))
            found.append(
                [self._rank({**where, **dict(zip(inside, m, strict=True))}) for m in members]
            )
        return found

    def _rank(self, place: dict[str, int]) -> int:
        rank = 0
        for axis in AXES:
            rank = rank * getattr(self, axis) + place[axis]
        return rank


class Workers(Protocol):
    """Some workers, or all of them (`comm.world`)."""

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all of them."""

    def all_reduce_mean(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the means over all of them."""


class Group:
    """A group of workers that communicate with each other; positions in it count from 0."""

    def __init__(
        self, ranks: Sequence[int], rank: int, process_group: dist.ProcessGroup | None
    ) -> None:
        self.ranks = tuple(ranks)
        self.size = len(self.ranks)
        self.rank = self.ranks.index(rank)
        """The position of this worker."""
        self.process_group = process_group
        """Torch's group; None for the default one."""

    @property
    def is_alone(self) -> bool:
        """Whether this worker is the only one of the group."""
        return self.size < 2

    def all_reduce(self, tensor: Tensor, mode: str = "sum") -> Tensor:
        """Return the reduced tensor, the same on all workers of the group."""
        if self.is_alone:
            return tensor.detach().clone()
        return world.all_reduce(tensor, mode, group=self.process_group)

    def all_reduce_mean(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the means over the group of tensors, with one message for each type."""
        if self.is_alone:
            return list(tensors)
        return world.all_reduce_mean(tensors, group=self.process_group)

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:
        """Return the tensor of the worker at place `source` on all workers of the group."""
        if self.is_alone:
            return tensor.detach().clone()
        return world.broadcast(tensor, self.ranks[source], group=self.process_group)

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all workers of the group by place; all have the same shape."""
        if self.is_alone:
            return [tensor.detach().contiguous().clone()]
        return world.all_gather(tensor, group=self.process_group)


class _Made:
    """The groups and meshes that exist, for `world.disconnect` to release."""

    def __init__(self) -> None:
        self.groups: dict[tuple[Degrees, tuple[str, ...], bool], Group] = {}
        self.meshes: dict[tuple[Degrees, str], DeviceMesh] = {}
        self.of: object = None  # the default group when they were made

    def leave(self) -> None:
        """Release them."""
        self.groups.clear()
        self.meshes.clear()

    def refresh(self) -> None:
        """Drop those of a world that has ended."""
        now = world.ring(0)
        if now is not self.of:
            self.leave()
            self.of = now
            world.hold(self)


_made = _Made()


@dataclass(frozen=True)
class Layout:
    """Degrees, and the position of this worker."""

    degrees: Degrees
    rank: int = 0

    @cached_property
    def place(self) -> dict[str, int]:
        """The coordinates of this worker in each dimension."""
        return self.degrees.place(self.rank)

    @property
    def is_plain(self) -> bool:
        """Whether all workers are copies."""
        return self.degrees.workers == self.degrees.dp

    def group(self, *axes: str, twin: bool = False) -> Group:
        """Return this worker's group along some dimensions; all workers must call it together.

        `twin` returns a second group of the same workers, whose messages do not wait for those of
        the first.
        """
        wanted = tuple(a for a in AXES if a in axes and getattr(self.degrees, a) > 1)
        members = self.degrees.groups(wanted)
        own = next(ranks for ranks in members if self.rank in ranks)
        if len(own) < 2 or not world.is_connected():
            return Group(own, self.rank, None)
        if len(members) == 1 and not twin:
            return Group(own, self.rank, world.ring(0))
        _made.refresh()
        key = self.degrees, wanted, twin
        if key not in _made.groups:
            for ranks in members:  # every worker takes part in creating every group
                process_group = dist.new_group(ranks, timeout=world.timeout())
                if ranks == own:
                    _made.groups[key] = Group(own, self.rank, process_group)
        return _made.groups[key]

    def mesh(self, device: str) -> DeviceMesh:
        """Return torch's mesh of the dimensions with more than one worker; all workers must call
        it together."""
        from torch.distributed.device_mesh import init_device_mesh

        _made.refresh()
        key = self.degrees, device
        if key not in _made.meshes:
            axes = tuple(a for a in AXES if getattr(self.degrees, a) > 1)
            sizes = tuple(getattr(self.degrees, a) for a in axes)
            _made.meshes[key] = init_device_mesh(device, sizes, mesh_dim_names=axes)
        return _made.meshes[key]
