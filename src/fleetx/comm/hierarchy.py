"""Hierarchical all-reduce: within groups, between their leaders, and back.

Only leaders communicate between groups, so slow links between them carry each gradient once in each
direction. CPU workers of one machine use shared memory within their group. A bucket is pipelined in
pieces: while one piece is reduced between the leaders, the next is reduced within the groups and
the previous one is broadcast back.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist

from fleetx.comm import shared_memory, world
from fleetx.comm.device import takes_only_gpus
from fleetx.runtime import environment

PIECE_BYTES = 4 * 2**20


def check_groups(group_size: int) -> None:
    """Raise ValueError unless the workers divide into groups of this size."""
    size = world.world_size()
    if group_size < 2 or size % group_size:
        raise ValueError(
            f"hierarchical_allreduce_inter_nranks is {group_size}, but {size} workers must divide "
            "into groups of that size, at least 2."
        )


def _library_within() -> str | None:
    """Return the collective library within groups; None for that of all workers."""
    wanted = dist.get_backend() == "gloo" and environment.may_share_memory()
    if not (wanted and shared_memory.is_supported()):
        return None
    shared_memory.register()
    return shared_memory.NAME


class PiecesHandle:
    """A handle of all pieces of a bucket."""

    def __init__(self, pieces: list[Future[None]]) -> None:
        self._pieces = pieces

    def wait(self) -> None:
        """Wait until the bucket holds the sum; raise the error of a failed piece."""
        for piece in self._pieces:
            piece.result()


class Hierarchy:
    """Groups of consecutive workers, and the group of their leaders."""

    def __init__(self, group_size: int) -> None:
        size = world.world_size()
        self._leader = world.rank() // group_size * group_size
        leaders = list(range(0, size, group_size))
        # Every worker takes part in creating every group. Messages of one group must have the same
        # order on all its workers, so each direction has its own group.
        library = _library_within()
        for first in leaders:
            members = list(range(first, first + group_size))
            inward = dist.new_group(members, backend=library, timeout=world.timeout())
            outward = dist.new_group(members, backend=library, timeout=world.timeout())
            if first == self._leader:
                self._inward, self._outward = inward, outward
        self._between = dist.new_group(leaders, timeout=world.timeout())
        # NCCL kernels of several groups could block each other, so they share one thread.
        lanes = 1 if takes_only_gpus(dist.get_backend()) else 3
        self._lanes = [ThreadPoolExecutor(1) for _ in range(lanes)]

    def start(self, bucket: torch.Tensor) -> PiecesHandle:
        """Start to sum a flat bucket in place."""
        inward, between, outward = self._lanes if len(self._lanes) == 3 else self._lanes * 3
        ends = []
        for piece in bucket.split(max(1, PIECE_BYTES // bucket.element_size())):
            summed = inward.submit(self._reduce, piece)
            if self._leader == world.rank():
                summed = between.submit(self._all_reduce, piece, summed)
            ends.append(outward.submit(self._broadcast, piece, summed))
        return PiecesHandle(ends)

    def _reduce(self, piece: torch.Tensor) -> None:
        if isinstance(self._inward, shared_memory.SharedMemoryGroup):
            dist.all_reduce(piece, group=self._inward)  # the broadcast replaces what others get
        else:
            dist.reduce(piece, self._leader, group=self._inward)

    def _all_reduce(self, piece: torch.Tensor, before: Future[None]) -> None:
        before.result()
        dist.all_reduce(piece, group=self._between)

    def _broadcast(self, piece: torch.Tensor, before: Future[None]) -> None:
        before.result()
        dist.broadcast(piece, self._leader, group=self._outward)

    def leave(self) -> None:
        """Stop the threads and release the groups."""
        for lane in self._lanes:
            lane.shutdown(wait=True)
        del self._inward, self._outward, self._between
