"""All-reducing flat buckets of gradients: plain, in half precision, hierarchical, over several
communicators.

`GradientAllReduce` holds the settings; `start(bucket)` sums a bucket over all workers in place, in
the background, and returns a handle to wait for. Modules and programs both reduce through it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from fleetx.comm import world
from fleetx.comm.buckets import DEFAULT_MB
from fleetx.comm.hierarchy import Hierarchy, check_groups
from fleetx.comm.layout import Group


class Handle(Protocol):
    """An operation in progress that can be waited for."""

    def wait(self) -> object:
        """Wait until the bucket holds the sum."""


@dataclass(frozen=True, kw_only=True)
class AllReduceSettings:
    """How gradients are summed over workers."""

    dtype: torch.dtype | None = None
    """The type to send: None for the gradients' own, float16 or bfloat16 to halve the bytes."""
    group_size: int = 0
    """Workers per group of the hierarchical all-reduce (within groups, between leaders, back); 0
    for a flat ring."""
    communicators: int = 1
    """The number of communicators, which take buckets round-robin."""

    def __post_init__(self) -> None:
        if self.dtype not in (None, torch.float16, torch.bfloat16):
            raise ValueError(f"gradients can be sent as float16 or bfloat16, not {self.dtype}.")
        if self.communicators < 1:
            raise ValueError(f"nccl_comm_num must be at least 1, not {self.communicators}.")


class _Done:
    """A handle of a completed operation."""

    def wait(self) -> None:
        """Return immediately."""


class _Converted:
    """A handle of a bucket that is sent in another type."""

    def __init__(self, handle: Handle, travelling: torch.Tensor, bucket: torch.Tensor) -> None:
        self._parts = handle, travelling, bucket

    def wait(self) -> None:
        """Wait, then convert the sum back."""
        handle, travelling, bucket = self._parts
        handle.wait()
        bucket.copy_(travelling)


class GradientAllReduce:
    """All-reduce of buckets over all workers, or over a group of them, as configured."""

    def __init__(self, settings: AllReduceSettings, group: Group | None = None) -> None:
        self.settings = settings
        self._group = group
        self._started = 0
        self._hierarchy: list[Hierarchy] = []
        self._is_ready = False
        world.hold(self)
        if settings.group_size and world.is_connected():
            check_groups(settings.group_size)
        # If the rendezvous is deferred, the first bucket triggers it and creates the groups.
        if dist.is_initialized():
            self._make_groups()

    @property
    def workers(self) -> int:
        """How many workers' buckets are added up."""
        return world.world_size() if self._group is None else self._group.size

    def mean(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the mean of a tensor over these workers, in its own type."""
        reduce = world.all_reduce if self._group is None else self._group.all_reduce
        return reduce(tensor).mul_(1.0 / self.workers)

    def _make_groups(self) -> None:
        self._is_ready = True
        world.meet()
        if self._group is not None:
            return
        if self.settings.group_size and world.is_connected():
            self._hierarchy = [
                Hierarchy(self.settings.group_size) for _ in range(self.settings.communicators)
            ]
        else:
            for number in range(self.settings.communicators):
                world.ring(number)

    def leave(self) -> None:
        """Release groups and threads."""
        for hierarchy in self._hierarchy:
            hierarchy.leave()
        self._hierarchy = []

    def start(self, bucket: torch.Tensor) -> Handle:
        """Start to sum a flat bucket in place; call `wait` on the returned handle to finish."""
        if self.workers < 2:
            return _Done()
        if not self._is_ready:
            self._make_groups()
        travelling = bucket
        wanted = self.settings.dtype
        if wanted is not None and bucket.dtype in (torch.float32, torch.float64):
            travelling = bucket.to(wanted)
        handle = self._start(travelling)
        return handle if travelling is bucket else _Converted(handle, travelling, bucket)

    def _start(self, tensor: torch.Tensor) -> Handle:
        if self._group is not None:
            handle: Handle = dist.all_reduce(tensor, group=self._group.process_group, async_op=True)
            return handle
        number = self._started % self.settings.communicators
        self._started += 1
        if self._hierarchy:
            return self._hierarchy[number].start(tensor)
        work: Handle = dist.all_reduce(tensor, group=world.ring(number), async_op=True)
        return work


@dataclass
class GradientExchange:
    """The exchange of a step's gradients: how a bucket is summed, and the size of buckets."""

    all_reduce: GradientAllReduce
    limit_mb: float = DEFAULT_MB
    last_mb: float = 1.0
    limit_count: int = 0
    announced: bool = False

    def announce(self, before: int, after: int) -> None:
        """Log once, on rank 0, how many all-reduces there were and how many remain."""
        if not self.announced and world.rank() == 0:
            text = (
                f"Find all_reduce operators: {before}. To make the speed faster, some all_reduce "
                f"ops are fused during training, after fusion, the number of all_reduce ops is "
                f"{after}."
            )
            print(text, file=sys.stderr, flush=True)
        self.announced = True
