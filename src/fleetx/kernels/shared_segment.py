"""Memory that processes of one machine share, and the collectives through it (`_shm.c`).

The memory is anonymous: it has no name, does not count towards /dev/shm, can be opened only by
processes of the same user, and is freed with the last process that has mapped it.
"""

from __future__ import annotations

import os
import threading
from enum import IntEnum
from typing import Any

import torch

from fleetx.kernels import compiled

MODULE = "fleetx.kernels._shm"

CHUNK = 256 * 1024
"""Bytes of a buffer; both buffers of a member should fit into the caches of its core."""

MOST_BYTES = 16 * 2**20
"""The maximum size of a segment's buffers: in large groups each one is smaller."""

_VERSION = 2
_UNIT = 16 * 1024  # of buffers

TOKEN_BYTES = 16

# In the order of the enumerations of _shm.c.
TYPES = {
    dtype: number
    for number, dtype in enumerate(
        (
            torch.float32,
            torch.float64,
            torch.bfloat16,
            torch.float16,
            torch.int8,
            torch.uint8,
            torch.int16,
            torch.int32,
            torch.int64,
        )
    )
}
"""The types that reductions support."""

_TYPE_NAMES = [str(dtype).removeprefix("torch.") for dtype in TYPES]


class Reduction(IntEnum):
    """How elements are combined."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3


class _Kind(IntEnum):
    ALL_REDUCE = 0
    BROADCAST = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    BARRIER = 4


class _Reason(IntEnum):
    DIED = 1
    LEFT = 2
    FAILED = 3
    TIMED_OUT = 4
    INTERRUPTED = 5
    DISAGREED = 6
    NOT_YET = 7


def why_impossible() -> str | None:
    """Return why this process cannot share memory, None if it can."""
    reason = compiled.why_missing(MODULE)
    if reason is not None:
        return f"{MODULE} cannot be used: {reason}"
    from fleetx.kernels import _shm

    if getattr(_shm, "VERSION", 1) != _VERSION:
        return f"{MODULE} was compiled for another version of fleetx: install fleetx again"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as error:
        return f"this system cannot watch processes: {error}"
    return None


def chunk(members: int) -> int:
    """Return the bytes of a buffer in a group of this size."""
    return max(_UNIT, min(CHUNK, MOST_BYTES // (2 * members) // _UNIT * _UNIT))


def create(members: int, token: bytes) -> int:
    """Create a segment; return its file descriptor, which others open below /proc."""
    from fleetx.kernels import _shm

    return _shm.create(members, chunk(members), token)


class Segment:
    """A mapped segment, and the collectives of its members. All members must call the same ones.

    A collective with `patience` returns False if another member has not called it for that many
    seconds. Repeating the call continues it; no other call may be made before.

    Args:
        file: the descriptor of the segment; it may be closed afterwards.
        rank: this member.
        size: the number of members.
        token: the random bytes passed to `create`, which identify the segment.
        seconds: the time limit of a collective.
    """

    def __init__(self, file: int, rank: int, size: int, token: bytes, seconds: float) -> None:
        from fleetx.kernels import _shm

        self.rank = rank
        self.size = size
        self.seconds = seconds
        # Spinning takes the core from the awaited member, unless each has its own.
        spins = size <= len(os.sched_getaffinity(0))
        self._shm = _shm
        self._group: Any = _shm.join(file, rank, size, chunk(size), token, spins)
        # The GIL is released in a collective, and two at once would mix their messages.
        self._lock = threading.Lock()

    def watch(self) -> None:
        """Start to detect the death of other members; all must have joined."""
        self._shm.watch(self._group)

    def all_reduce(
        self, tensor: torch.Tensor, reduction: Reduction = Reduction.SUM, patience: float = 0
    ) -> bool:
        """Reduce a contiguous tensor in place."""
        kind, count = _Kind.ALL_REDUCE, tensor.numel()
        call = kind, TYPES[tensor.dtype], reduction, 0, count
        return self._run(call, tensor.data_ptr(), 0, patience)

    def broadcast(self, tensor: torch.Tensor, root: int, patience: float = 0) -> bool:
        """Broadcast a contiguous tensor from member `root`, in place."""
        call = _Kind.BROADCAST, _BYTES, 0, root, tensor.nbytes
        return self._run(call, tensor.data_ptr(), 0, patience)

    def all_gather(self, output: torch.Tensor, tensor: torch.Tensor, patience: float = 0) -> bool:
        """Gather the tensors of all members into a contiguous output, by rank."""
        self._check_size(output, tensor, "the output of all_gather")
        call = _Kind.ALL_GATHER, _BYTES, 0, 0, tensor.nbytes
        return self._run(call, output.data_ptr(), tensor.data_ptr(), patience)

    def reduce_scatter(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        reduction: Reduction = Reduction.SUM,
        patience: float = 0,
    ) -> bool:
        """Reduce-scatter: reduce this member's part of the contiguous tensors of all."""
        self._check_size(tensor, output, "the input of reduce_scatter")
        call = _Kind.REDUCE_SCATTER, TYPES[tensor.dtype], reduction, 0, output.numel()
        return self._run(call, output.data_ptr(), tensor.data_ptr(), patience)

    def barrier(self, patience: float = 0) -> bool:
        """Wait until all members have called it."""
        return self._run((_Kind.BARRIER, _BYTES, 0, 0, 0), 0, 0, patience)

    def leave(self) -> None:
        """Unmap the segment after a running collective, and notify the others."""
        with self._lock:
            group, self._group = self._group, None
            if group is not None:
                self._shm.leave(group)

    def _check_size(self, whole: torch.Tensor, part: torch.Tensor, what: str) -> None:
        if whole.nbytes != part.nbytes * self.size:
            raise ValueError(
                f"{what} has {whole.nbytes} bytes, but {part.nbytes} are needed for each of "
                f"{self.size} workers."
            )

    def _run(self, call: tuple[int, int, int, int, int], to: int, of: int, patience: float) -> bool:
        with self._lock:
            if self._group is None:
                raise RuntimeError("this worker has left the group and cannot communicate in it.")
            failure = self._shm.run(self._group, *call, to, of, self.seconds, patience)
        if failure is None:
            return True
        reason, rank, theirs = failure
        if reason == _Reason.NOT_YET:
            return False
        raise RuntimeError(self._explain(reason, rank, theirs, call))

    def _explain(
        self, reason: int, rank: int, theirs: tuple[int, ...], own: tuple[int, ...]
    ) -> str:
        what = f"{_name(own[0])} of worker {self.rank}"
        if reason == _Reason.DIED:
            return f"{what} cannot be completed: worker {rank} has died."
        if reason == _Reason.LEFT:
            return f"{what} cannot be completed: worker {rank} has left the group or ended."
        if reason == _Reason.FAILED:
            return f"{what} cannot be completed: a collective of worker {rank} has failed."
        if reason == _Reason.TIMED_OUT:
            return (
                f"{what} cannot be completed: worker {rank} did not call a collective within "
                f"{self.seconds:g} s. It hangs, computes for longer, or the workers "
                "communicate in different orders."
            )
        if reason == _Reason.INTERRUPTED:
            return f"{what} was interrupted; the group cannot be used any more."
        return (
            f"workers call different collectives: worker {self.rank} {_describe(own)}, worker "
            f"{rank} {_describe(theirs)}. All workers must call the same ones in the same order, "
            "with tensors of the same size and type."
        )


_BYTES = TYPES[torch.uint8]


def _name(kind: int) -> str:
    return _Kind(kind).name.lower()


def _describe(call: tuple[int, ...]) -> str:
    kind, dtype, how, root, count = call
    if kind == _Kind.BARRIER:
        return "barrier"
    if kind == _Kind.BROADCAST:
        return f"broadcast from {root} of {count} bytes"
    if kind == _Kind.ALL_GATHER:
        return f"all_gather of {count} bytes"
    return f"{_name(kind)} ({Reduction(how).name}) of {count} elements of {_TYPE_NAMES[dtype]}"
