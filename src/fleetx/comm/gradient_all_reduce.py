"""All-reducing flat buckets of gradients: plain, in half precision, hierarchical, over several
communicators.

A `GradientAllReduce` says how; `start(bucket)` sums a bucket over all workers in place, in the
background, and returns a handle to wait for. The eager and the static front end both reduce through
it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from fleetx.comm import world
from fleetx.comm.buckets import fusion_message


class Handle(Protocol):
    """Something under way that can be waited for."""

    def wait(self) -> object:
        """Return when the bucket holds the sum."""


@dataclass(frozen=True, kw_only=True)
class AllReduceSettings:
    """How gradients are summed over workers."""

    dtype: torch.dtype | None = None
    """What travels: None for the gradients as they are, float16 or bfloat16 to halve the bytes."""
    group_size: int = 0
    """Workers per group for the hierarchical way (within groups, between leaders, back); 0 for a
    flat ring."""
    communicators: int = 1
    """How many communicators take buckets in turn."""

    def __post_init__(self) -> None:
        if self.dtype not in (None, torch.float16, torch.bfloat16):
            raise ValueError(f"gradients travel as float16 or bfloat16, not as {self.dtype}.")
        if self.communicators < 1:
            raise ValueError(f"nccl_comm_num must be at least 1, not {self.communicators}.")


def _check_groups(group_size: int) -> None:
    size = world.world_size()
    if group_size < 2 or size % group_size:
        raise ValueError(
            f"hierarchical_allreduce_inter_nranks is {group_size}, but {size} workers must divide "
            "into groups of that size, at least 2."
        )


class _Hierarchy:
    """Groups of consecutive workers and the group of their first ones."""

    def __init__(self, group_size: int) -> None:
        size = world.world_size()
        self.leader = world.rank() // group_size * group_size
        self.is_leader = world.rank() == self.leader
        leaders = list(range(0, size, group_size))
        # Every worker takes part in making every group.
        for first in leaders:
            group = dist.new_group(list(range(first, first + group_size)))
            if first == self.leader:
                self.inside = group
        self.between = dist.new_group(leaders)

    def all_reduce(self, bucket: torch.Tensor) -> None:
        """Sum within the group, between the leaders, and hand the result back."""
        dist.reduce(bucket, self.leader, group=self.inside)
        if self.is_leader:
            dist.all_reduce(bucket, group=self.between)
        dist.broadcast(bucket, self.leader, group=self.inside)


class _Done:
    """A handle for something that has ended already."""

    def wait(self) -> None:
        """Return at once."""


class _InBackground:
    """A handle on a future."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    def wait(self) -> None:
        """Wait for the end and raise what went wrong."""
        self._future.result()


class _Converted:
    """A handle on a bucket that travels in another type."""

    def __init__(self, handle: Handle, travelling: torch.Tensor, bucket: torch.Tensor) -> None:
        self._parts = handle, travelling, bucket

    def wait(self) -> None:
        """Wait, then convert the sum back."""
        handle, travelling, bucket = self._parts
        handle.wait()
        bucket.copy_(travelling)


class GradientAllReduce:
    """Sums buckets over all workers as the settings say."""

    def __init__(self, settings: AllReduceSettings) -> None:
        self.settings = settings
        self._started = 0
        self._hierarchy: list[_Hierarchy] = []
        self._threads: list[ThreadPoolExecutor] = []
        self._is_ready = False
        world.hold(self)
        if settings.group_size and world.is_connected():
            _check_groups(settings.group_size)
        # Workers that have not met yet do so at the first bucket, and make their groups then.
        if dist.is_initialized():
            self._make_groups()

    def _make_groups(self) -> None:
        self._is_ready = True
        world.meet()
        if self.settings.group_size and world.is_connected():
            self._hierarchy = [
                _Hierarchy(self.settings.group_size) for _ in range(self.settings.communicators)
            ]
            # One thread per communicator: its buckets go in the same order on all workers.
            self._threads = [ThreadPoolExecutor(1) for _ in self._hierarchy]
        else:
            for number in range(self.settings.communicators):
                world.ring(number)

    def leave(self) -> None:
        """Let go of groups and threads."""
        for thread in self._threads:
            thread.shutdown(wait=True)
        self._threads, self._hierarchy = [], []

    def start(self, bucket: torch.Tensor) -> Handle:
        """Start summing a flat bucket in place; the returned handle's `wait` ends it."""
        if not world.is_connected():
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
        number = self._started % self.settings.communicators
        self._started += 1
        if not self._hierarchy:
            work: Handle = dist.all_reduce(tensor, group=world.ring(number), async_op=True)
            return work
        reduce: Callable[[torch.Tensor], None] = self._hierarchy[number].all_reduce
        return _InBackground(self._threads[number].submit(reduce, tensor))


@dataclass
class GradientExchange:
    """How a step's gradients are exchanged: how a bucket is summed, and how large buckets are."""

    all_reduce: GradientAllReduce
    limit_mb: float = 32.0
    last_mb: float = 1.0
    limit_count: int = 0
    announced: bool = False

    def announce(self, before: int, after: int) -> None:
        """Say once, on rank 0, how many all-reduces there were and how many remain."""
        if not self.announced and world.rank() == 0:
            print(fusion_message(before, after), file=sys.stderr, flush=True)
        self.announced = True
