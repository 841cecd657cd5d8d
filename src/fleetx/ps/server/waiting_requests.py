"""Requests that wait for a step or a barrier, with bounded memory per worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from fleetx.ps.server.sessions import Session
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import Problem, WireError

MAX_WAITING = 4096
"""The number of requests of one worker that may wait at a time …"""
MAX_WAITING_BYTES = 256 << 20
"""… and their bytes."""


@dataclasses.dataclass
class Waiting:
    """A request that waits, and where its reply goes."""

    message: Message
    session: Session
    route: bytes

    @property
    def key(self) -> tuple[int, int, int]:
        """The identity of the request; a repetition has the same."""
        header = self.message.header
        return header.worker, header.incarnation, header.request

    @property
    def size(self) -> int:
        """The bytes that the request holds."""
        return sum(tensor.nbytes for _, tensor in self.message.tensors)


class WaitingRequests:
    """Waiting requests in the order of their arrival."""

    def __init__(self) -> None:
        self._requests: dict[tuple[int, int, int], Waiting] = {}

    def __iter__(self) -> Iterator[Waiting]:
        return iter(list(self._requests.values()))

    def __bool__(self) -> bool:
        return bool(self._requests)

    def add(self, request: Waiting) -> None:
        """Set a request aside; a repetition replaces the first one."""
        worker = request.message.header.worker
        held = [w for w in self._requests.values() if w.message.header.worker == worker]
        if len(held) >= MAX_WAITING or sum(w.size for w in held) + request.size > MAX_WAITING_BYTES:
            raise WireError(
                Problem.TOO_LARGE,
                f"{len(held)} requests of this worker wait already; at most {MAX_WAITING} with "
                f"{MAX_WAITING_BYTES} bytes may",
            )
        self._requests[request.key] = request

    def remove(self, request: Waiting) -> None:
        """Forget a request that has been answered."""
        self._requests.pop(request.key, None)

    def forget(self, worker: int) -> None:
        """Forget all requests of a worker's earlier process."""
        for key in [key for key in self._requests if key[0] == worker]:
            del self._requests[key]

    def clear(self) -> None:
        """Forget all requests."""
        self._requests.clear()
