"""The positions and lifetimes of requests and replies in a connection's shared memory."""

from __future__ import annotations

from collections import deque
from typing import Any

from fleetx.ps.client.request import Request
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import Flag
from fleetx.ps.wire.shared_payloads import WORTHWHILE, Arena

Region = tuple[int, int]


class SharedBodies:
    """The worker's book-keeping of an arena; without one, everything is sent in messages."""

    def __init__(self, arena: Arena | None) -> None:
        self._arena = arena
        self.is_open = False
        """Whether the server has mapped the memory."""
        self._held: deque[tuple[int, Region]] = deque()
        self._quarantined: list[Region] = []

    def offer(self) -> dict[str, Any] | None:
        """Return the data that the server needs to map the memory."""
        return self._arena.offer() if self._arena is not None else None

    def close(self) -> None:
        """Release the memory."""
        if self._arena is not None:
            self._arena.close()

    def _take(self, size: int) -> Region | None:
        if not self.is_open or self._arena is None or size < WORTHWHILE:
            return None
        start = self._arena.take(size)
        return None if start is None else (start, size)

    def _give_back(self, region: Region) -> None:
        assert self._arena is not None
        self._arena.give_back(*region)

    def place(self, request: Request, size: int) -> bool:
        """Put a request's body into the memory, and reserve room for its reply.

        Return whether that succeeded; otherwise the body has to be sent in the message.
        """
        self._reserve_reply(request)
        if request.body is None:
            request.body = self._take(size)
            if request.body is not None:
                assert self._arena is not None
                space = wire.read_tensors(request.specs, self._arena.view(*request.body))
                for (_, into), (_, tensor) in zip(space, request.tensors, strict=True):
                    into.copy_(tensor)
        return request.body is not None and self.is_open

    def _reserve_reply(self, request: Request) -> None:
        header = request.header
        header.reply_offset = header.reply_room = 0
        if request.attempt == 0:
            request.reply = self._take(request.room)
            if request.reply is not None:
                header.reply_offset, header.reply_room = request.reply
        elif request.reply is not None:
            # The server may still write the first reply there; the next one is sent in a message.
            self._quarantined.append(request.reply)
            request.reply = None

    def read(self, request: Request, message: Message) -> bool:
        """Read the tensors of a reply; return False for a late one whose room was released."""
        if message.header.flags & Flag.SHARED:
            if request.reply is None or self._arena is None:
                return False
            body = self._arena.view(request.reply[0], message.header.total)
            message.tensors = wire.read_tensors(message.shared, body)
        return True

    def release(self, request: Request, *, is_applied: bool) -> None:
        """Release the reservations of a request that has its reply."""
        if request.reply is not None:
            self._give_back(request.reply)
            request.reply = None
        if request.body is not None:
            if request.held and not is_applied:
                self._held.append((request.header.step, request.body))
            else:
                self._give_back(request.body)
            request.body = None

    def applied(self, version: int) -> None:
        """Release the bodies of gradients whose steps have been applied."""
        while self._held and self._held[0][0] < version:
            self._give_back(self._held.popleft()[1])

    def restart(self, pending: list[Request]) -> None:
        """Release what only the server's earlier process could have written to."""
        for request in pending:
            if request.reply is not None:
                self._give_back(request.reply)
                request.reply = None
        for region in self._quarantined:
            self._give_back(region)
        self._quarantined.clear()
