"""Payloads between processes of one machine, in memory that both have mapped.

A worker creates an anonymous in-memory file (memfd) per server and sends its process id and
descriptor with its hello; a server on the same machine opens it under /proc. It has no name that
could be left behind: when both processes have ended, in any way, the memory is freed. The worker
alone assigns positions, for its requests and for the server's replies; the file is sealed, so it
cannot be truncated while the server uses it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from typing import Any

import torch

from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Tensors
from fleetx.ps.wire.messages import ALIGNMENT, Flag, Header, Problem, WireError

DEFAULT_BYTES = 1 << 30
"""The size per worker and server; only the used part takes memory."""
WORTHWHILE = 1 << 16
"""Smaller bodies are faster in the message itself."""

_NAME = "fleetx-ps"
_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_TOKEN = 16


class Arena:
    """The worker's side: the memory, and the parts of it that are in use."""

    def __init__(self, size: int = DEFAULT_BYTES) -> None:
        self._descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._descriptor, size)
        fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, _SEALS)
        self._map = mmap.mmap(self._descriptor, size)
        self._token = secrets.token_bytes(_TOKEN)
        self._map[:_TOKEN] = self._token
        self._free = [(ALIGNMENT, size - ALIGNMENT)]
        self._size = size

    def offer(self) -> dict[str, Any]:
        """Return the data that a server needs to find this memory."""
        return {
            "process": os.getpid(),
            "descriptor": self._descriptor,
            "bytes": self._size,
            "token": self._token.hex(),
        }

    def take(self, size: int) -> int | None:
        """Reserve `size` bytes and return their offset; None if there is no room."""
        size = _rounded(size)
        for index, (start, room) in enumerate(self._free):
            if room >= size:
                if room == size:
                    del self._free[index]
                else:
                    self._free[index] = (start + size, room - size)
                return start
        return None

    def give_back(self, start: int, size: int) -> None:
        """Release a reservation."""
        merged: list[tuple[int, int]] = []
        for at, room in sorted([*self._free, (start, _rounded(size))]):
            if merged and sum(merged[-1]) == at:
                merged[-1] = (merged[-1][0], merged[-1][1] + room)
            else:
                merged.append((at, room))
        self._free = merged

    def view(self, start: int, size: int) -> memoryview:
        """Return the bytes of a reservation."""
        return memoryview(self._map)[start : start + size]

    def close(self) -> None:
        """Release the memory; existing views keep it alive until they are gone."""
        os.close(self._descriptor)


def _rounded(size: int) -> int:
    return max(-(-size // ALIGNMENT) * ALIGNMENT, ALIGNMENT)


class MappedArena:
    """The server's side of a worker's memory."""

    def __init__(self, offer: dict[str, Any]) -> None:
        process, number, size = (int(offer[name]) for name in ("process", "descriptor", "bytes"))
        path = f"/proc/{process}/fd/{number}"
        if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
            raise ValueError(f"{path} is not memory of a worker")
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
                raise ValueError(f"{path} is not sealed")
            if os.fstat(descriptor).st_size != size:
                raise ValueError(f"{path} does not have the announced size")
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        # Another machine, or another container, may have a process with the same id.
        if self._map[:_TOKEN] != bytes.fromhex(offer["token"]):
            raise ValueError(f"{path} is the memory of another worker")

    def view(self, start: int, size: int) -> memoryview:
        """Return the bytes from `start`."""
        if start % ALIGNMENT or start + size > len(self._map):
            raise WireError(Problem.MALFORMED, "a body is outside of the shared memory")
        return memoryview(self._map)[start : start + size]


class SharedReply:
    """A reply that is written where the worker has reserved room for it, if it fits."""

    def __init__(self, request: Header, arena: MappedArena | None) -> None:
        self._offset, self._room = request.reply_offset, request.reply_room
        self._arena = arena
        self._specs: list[wire.TensorSpec] = []
        self.is_used = False

    def place(self, shapes: list[tuple[int, torch.dtype, tuple[int, ...]]]) -> Tensors:
        """Return tensors to fill, in shared memory or elsewhere."""
        specs = wire.place(shapes)
        size = wire.body_size(specs)
        if size > wire.MAX_BODY:
            raise WireError(Problem.TOO_LARGE, f"the answer would have {size} bytes")
        if self._arena is None or not 0 < size <= self._room:
            return [(key, torch.empty(shape, dtype=dtype)) for key, dtype, shape in shapes]
        self._specs, self.is_used = specs, True
        return wire.read_tensors(specs, self._arena.view(self._offset, size))

    def frames(self, header: Header) -> list[bytes]:
        """Return the message that announces the reply to the worker."""
        header.flags |= Flag.SHARED
        header.total, header.offset = wire.body_size(self._specs), self._offset
        return [header.pack(), wire.pack_specs(self._specs), b""]


def attach(offer: object) -> tuple[MappedArena | None, str]:
    """Map the memory that a worker offers; return (memory or None, why not)."""
    if not isinstance(offer, dict):
        return None, "none was offered"
    try:
        return MappedArena(offer), ""
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        return None, str(error)
