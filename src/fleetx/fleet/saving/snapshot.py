"""The content of a checkpoint at one moment: tensors by path, and everything else as JSON text.

A background save needs a copy that training does not change. It goes into memory that is kept for
the next save, because touching new memory takes several times as long as the copy itself. The
memory is pinned if tensors come from a GPU.
"""

from __future__ import annotations

import contextlib
import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fleetx.fleet.saving.state_text import flatten

# No element type is wider, and caches and vector instructions prefer it.
_ALIGNMENT = 64
# Of Linux 5.14; Python's mmap has no name for it.
_MADV_POPULATE_WRITE = 23


@dataclass(frozen=True)
class Snapshot:
    """The states of one worker."""

    text: bytes
    tensors: dict[str, torch.Tensor]


class CopyBuffer:
    """Memory for one copy of the states, reused by the next."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)

    def copy(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return copies that stay valid until the next call."""
        places, end = [], 0
        for tensor in tensors.values():
            size = tensor.numel() * tensor.element_size()
            places.append((end, size))
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        gpus = {tensor.device for tensor in tensors.values() if tensor.is_cuda}
        if self._memory.numel() < end:
            self._memory = torch.empty(0, dtype=torch.uint8)  # freed before the larger one is made
            self._memory = _allocate(end, pinned=bool(gpus))
        copies = {}
        for (start, size), (name, tensor) in zip(places, tensors.items(), strict=True):
            place = self._memory[start : start + size].view(tensor.dtype).view(tensor.shape)
            copies[name] = place.copy_(tensor, non_blocking=True)
        for gpu in gpus:
            torch.cuda.synchronize(gpu)
        return copies


def _allocate(size: int, *, pinned: bool) -> torch.Tensor:
    if pinned:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    with contextlib.suppress(OSError):  # kernels before 5.14
        # In one call: threads that copy into new memory wait for each other at every page.
        memory.madvise(_MADV_POPULATE_WRITE)
    return torch.frombuffer(memory, dtype=torch.uint8)


def take(states: Mapping[str, Any], buffer: CopyBuffer | None = None) -> Snapshot:
    """Return the states as they are to be written; copied if there is a buffer."""
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(flatten(dict(states), "", tensors)).encode()
    if buffer is not None:
        return Snapshot(text, buffer.copy(tensors))
    return Snapshot(text, {name: t.cpu().contiguous() for name, t in tensors.items()})
