"""Reused communication buffers, in which blocks of a sharded model are gathered and reduced.

PyTorch allocates these buffers for every block in every step. Large buffers that are returned to
the system cause page faults again, and those that stay in the C library's heap fragment it. A
buffer is lent as the storage of a tensor, and is returned when nothing refers to that storage any
more.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_SMALL = 1 << 16  # the heap serves such blocks well
_IDLE = 2
"""How many of the largest buffers are kept idle: one is gathered while another is reduced."""


class KeptBuffers:
    """Buffers on the CPU, by their size in bytes.

    Any thread may drop the last reference, also in the middle of a method: each access of a
    collection is a single call that no other thread can interrupt.
    """

    def __init__(self) -> None:
        self._idle: dict[int, Tensor] = {}  # of messages, by address, the latest last
        self._parts: dict[int, list[Tensor]] = {}
        self._largest = 0

    def lend(self, size: Sequence[int], dtype: torch.dtype, *, is_part: bool) -> Tensor:
        """Return a tensor of any values. A part of gradients is needed again in every step, and
        its buffer stays; so many others stay as are used at once."""
        count = math.prod(size)
        needed = count * dtype.itemsize
        if needed < _SMALL or torch.compiler.is_compiling():
            return torch.empty(size, dtype=dtype)
        buffer = self._find(needed, is_part=is_part)
        if buffer is None:
            buffer = torch.empty(needed, dtype=torch.uint8)
        memory = buffer.numpy()  # an object of its own for every loan; the storage refers to it
        weakref.finalize(memory, self._take_back, buffer, is_part=is_part).atexit = False
        return torch.frombuffer(memory, dtype=dtype, count=count).view(size)

    def _find(self, needed: int, *, is_part: bool) -> Tensor | None:
        if is_part:
            try:
                return self._parts[needed].pop()
            except (KeyError, IndexError):
                return None
        self._largest = max(self._largest, needed)
        for address, buffer in list(self._idle.items()):
            if buffer.numel() == needed and self._idle.pop(address, None) is not None:
                return buffer
        return None

    def _take_back(self, buffer: Tensor, *, is_part: bool) -> None:
        if is_part:
            self._parts.setdefault(buffer.numel(), []).append(buffer)
            return
        self._idle[buffer.data_ptr()] = buffer
        for address in list(self._idle):
            if self.idle_bytes() <= _IDLE * self._largest:
                break
            self._idle.pop(address, None)

    def idle_bytes(self) -> int:
        """Return the bytes of idle buffers; those of gradient shards do not count."""
        return sum(each.numel() for each in list(self._idle.values()))


class KeptGather:
    """All-gathers of `fully_shard` in kept buffers (an `AllGather` of its
    `set_custom_all_gather`)."""

    def __init__(self, buffers: KeptBuffers) -> None:
        self._buffers = buffers

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return where parameters are gathered."""
        return self._buffers.lend(size, dtype, is_part=False)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Gather the parts of all workers."""
        return _gather(output_tensor, input_tensor, group=group, async_op=async_op)


class KeptReduce:
    """Reduce-scatters of `fully_shard` in kept buffers (a `ReduceScatter` of its
    `set_custom_reduce_scatter`)."""

    def __init__(self, buffers: KeptBuffers) -> None:
        self._buffers = buffers
        self._gives_part = False

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return where gradients are sent from, and with the next call where a part arrives."""
        is_part, self._gives_part = self._gives_part, not self._gives_part
        return self._buffers.lend(size, dtype, is_part=is_part)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Reduce gradients to a part for each worker."""
        return _reduce(output_tensor, input_tensor, group=group, op=op, async_op=async_op)


# Of the two names of each, PyTorch 2.13 warns of the older.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
