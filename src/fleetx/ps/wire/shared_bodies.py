"""Which requests and answers of a connection lie where in its shared memory, and until when."""

from __future__ import annotations

from collections import deque
from typing import Any

from fleetx.ps.client.request import Request
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import Flag
from fleetx.ps.wire.shared_memory import WORTHWHILE, Arena

Region = tuple[int, int]


class SharedBodies:
    """The worker's book-keeping of an arena; without one, everything goes in messages."""

    def __init__(self, arena: Arena | None) -> None:
        self._arena = arena
        self.is_open = False
        """Whether the server has mapped the memory."""
        self._held: deque[tuple[int, Region]] = deque()
        self._quarantined: list[Region] = []

    def offer(self) -> dict[str, Any] | None:
        """Return what the server needs to map the memory."""
        return self._arena.offer() if self._arena is not None else None

    def close(self) -> None:
        """Give up the memory."""
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
        """Put a request's body into the memory, and reserve room for its answer.

        Returns whether the body is there; otherwise it has to go in the message.
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
            # The server may still write the first answer there; the next one comes in a message.
            self._quarantined.append(request.reply)
            request.reply = None

    def read(self, request: Request, message: Message) -> bool:
        """Find the tensors of an answer; False: it is a late one whose room was given up."""
        if message.header.flags & Flag.SHARED:
            if request.reply is None or self._arena is None:
                return False
            body = self._arena.view(request.reply[0], message.header.total)
            message.tensors = wire.read_tensors(message.shared, body)
        return True

    def release(self, request: Request, *, is_applied: bool) -> None:
        """End the reservations of a request that has been answered."""
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
        """Free the bodies of gradients whose steps have been applied."""
        while self._held and self._held[0][0] < version:
            self._give_back(self._held.popleft()[1])

    def restart(self, pending: list[Request]) -> None:
        """Take back what only a server that is no more could have written to."""
        for request in pending:
            if request.reply is not None:
                self._give_back(request.reply)
                request.reply = None
        for region in self._quarantined:
            self._give_back(region)
        self._quarantined.clear()
