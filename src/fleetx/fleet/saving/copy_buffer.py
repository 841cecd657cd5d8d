"""Memory for the copies that background saves write: kept for the next save, because touching new
memory takes several times as long as the copy itself.

The kernel clears every page when it is first touched, and in a virtual machine the host must also
provide it. `prepare` does that in a thread before the first save. It is pinned if tensors come from
a GPU.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence

import torch

# No element type is wider, and caches and vector instructions prefer it.
_ALIGNMENT = 64
# Of Linux 5.14; Python's mmap has no name for it, and its madvise does not release Python's lock.
_MADV_POPULATE_WRITE = 23
# Other threads that map memory wait for a call of madvise; one of this size takes milliseconds.
_PART = 8 << 20


class CopyBuffer:
    """Memory for one copy of the states, reused by the next."""

    def __init__(self) -> None:
        self._blocks: list[torch.Tensor] = []
        self._thread: threading.Thread | None = None
        self._is_needed = threading.Event()

    @property
    def size(self) -> int:
        """The number of bytes that are kept."""
        return sum(block.numel() for block in self._blocks)

    def prepare(self, tensors: Iterable[torch.Tensor]) -> None:
        """Reserve memory for a copy of tensors like these, and touch it in a thread."""
        self.wait()
        tensors = list(tensors)
        new = _missing([_space(tensor) for tensor in tensors], self._blocks)
        if new == 0:
            return
        if any(tensor.is_cuda for tensor in tensors):
            self._blocks.append(_allocate(new, pinned=True))
            return
        block = _allocate(new, pinned=False)
        self._blocks.append(block)
        self._is_needed.clear()
        self._thread = threading.Thread(
            target=_touch, args=(block, self._is_needed), name="fleetx-copy-memory"
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until the memory is prepared."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def copy(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return copies that stay valid until the next call."""
        self._is_needed.set()  # the copy itself touches what the thread has not reached
        self.wait()
        spaces = [_space(tensor) for tensor in tensors.values()]
        gpus = {tensor.device for tensor in tensors.values() if tensor.is_cuda}
        new = _missing(spaces, self._blocks)
        if new:
            self._blocks.append(_allocate(new, pinned=bool(gpus)))
        copies = {}
        places = _places(spaces, [block.numel() for block in self._blocks])
        for (index, start), (name, tensor) in zip(places, tensors.items(), strict=True):
            bytes_ = self._blocks[index][start : start + tensor.numel() * tensor.element_size()]
            place = bytes_.view(tensor.dtype).view(tensor.shape)
            copies[name] = place.copy_(tensor, non_blocking=True)
        for gpu in gpus:
            torch.cuda.synchronize(gpu)
        return copies


def _space(tensor: torch.Tensor) -> int:
    """Return the bytes that a copy takes; an empty one, too, has a place of its own."""
    size = tensor.numel() * tensor.element_size()
    return max(1, -(-size // _ALIGNMENT)) * _ALIGNMENT


def _places(spaces: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return block and offset of each tensor, in order, as far as the blocks suffice."""
    places: list[tuple[int, int]] = []
    index = start = 0
    for space in spaces:
        while index < len(sizes) and start + space > sizes[index]:
            index, start = index + 1, 0
        if index == len(sizes):
            break
        places.append((index, start))
        start += space
    return places


def _missing(spaces: Sequence[int], blocks: Sequence[torch.Tensor]) -> int:
    """Return how many bytes are needed besides the blocks."""
    placed = len(_places(spaces, [block.numel() for block in blocks]))
    return sum(spaces[placed:])


def _allocate(size: int, *, pinned: bool) -> torch.Tensor:
    if pinned:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    # Without huge pages: the kernel takes those from memory that has not been used for longest,
    # which in a virtual machine the host often does not provide yet.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=torch.uint8)


def _touch(block: torch.Tensor, is_needed: threading.Event) -> None:
    """Let the kernel provide the pages of a block, until it is needed."""
    if not sys.platform.startswith("linux"):
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for start in range(0, block.numel(), _PART):
        size = min(_PART, block.numel() - start)
        if is_needed.is_set() or madvise(block.data_ptr() + start, size, _MADV_POPULATE_WRITE):
            return  # kernels before 5.14 refuse it: then the copy touches the pages
