"""Reassembly of messages from parts, with bounded memory.

Parts may arrive twice or, if some were lost, in a second series; each part is written to its own
position, and a message is complete when its parts cover it. Limits bound the bytes and the number
of incomplete messages, per sender and of all; a sender without a session may send single parts
only. The oldest incomplete message has most likely been abandoned, so it gives way to a new one:
its sender's own first, so that no peer displaces another's. In any case the sender resends it.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Hashable, Sequence

import numpy as np
import torch

from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.messages import ALIGNMENT, Flag, Header, Problem, WireError

Tensors = list[tuple[int, torch.Tensor]]


@dataclasses.dataclass(slots=True)
class Message:
    """A header with its tensors; keys and order are those of the sender."""

    header: Header
    tensors: Tensors
    shared: list[wire.TensorSpec] = dataclasses.field(default_factory=list)
    """The layout of the tensors, before they are looked up in shared memory."""

    def only(self) -> torch.Tensor:
        """Return the only tensor of a body that must have exactly one."""
        if len(self.tensors) != 1:
            raise WireError(Problem.MALFORMED, f"{len(self.tensors)} tensors instead of one")
        return self.tensors[0][1]


class _Unfinished:
    def __init__(self, header: Header) -> None:
        self.total = header.total
        self.parts = header.parts
        # Zeros, not uninitialised memory: padding between tensors is not sent.
        self.buffer = np.zeros(header.total, dtype=np.uint8)
        self.seen: dict[int, tuple[int, int]] = {}
        self.specs = b""

    def add(self, header: Header, specs: bytes | memoryview, data: memoryview) -> bool:
        """Add a part; return whether every part has arrived."""
        if (header.total, header.parts) != (self.total, self.parts):
            raise WireError(Problem.MALFORMED, "the parts of a message contradict each other")
        if header.offset + len(data) > self.total:
            raise WireError(Problem.MALFORMED, "a part is outside of its message")
        place = (header.offset, header.offset + len(data))
        if self.seen.setdefault(header.part, place) != place:
            raise WireError(Problem.MALFORMED, f"part {header.part} came twice, at two places")
        self.buffer[place[0] : place[1]] = np.frombuffer(data, np.uint8)
        if header.part == 0:
            self.specs = bytes(specs)
        return len(self.seen) == self.parts

    def require_all(self) -> None:
        """Reject parts that do not cover the body, apart from the padding between tensors."""
        covered = 0
        for start, end in sorted(self.seen.values()):
            if not covered <= start < covered + ALIGNMENT:
                raise WireError(
                    Problem.MALFORMED, f"no part has the bytes from {covered} to {start}"
                )
            covered = end
        if covered != self.total:
            raise WireError(
                Problem.MALFORMED, f"the parts end at {covered}, and the header says {self.total}"
            )


class Assembler:
    """Assembler of parts into messages."""

    def __init__(
        self,
        max_bytes: int = 2 * wire.MAX_BODY,
        max_messages: int = 256,
        max_peer_bytes: int = wire.MAX_BODY,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_peer_bytes = min(max_bytes, max_peer_bytes)
        self._max_messages = max_messages
        self._unfinished: OrderedDict[tuple[Hashable, int], _Unfinished] = OrderedDict()

    def add(
        self, sender: Hashable, frames: Sequence[memoryview], *, limited: bool = False
    ) -> Message | None:
        """Add the frames of one part; return the message if it is complete.

        With `limited`, only messages of one part are accepted.
        """
        if len(frames) != 3:
            raise WireError(Problem.MALFORMED, f"{len(frames)} frames instead of 3")
        header = wire.unpack_header(frames[0])
        if len(frames[2]) > wire.MAX_PART:
            raise WireError(Problem.TOO_LARGE, f"a part of {len(frames[2])} bytes")
        if header.flags & Flag.SHARED:
            return Message(header, [], wire.unpack_specs(frames[1], header.total))
        if header.parts == 1:
            return _whole(header, frames[1], frames[2])
        if limited:
            raise WireError(Problem.NEED_HELLO, "the sender has not said hello yet")
        return self._collect((sender, header.request), header, frames[1], frames[2])

    def _collect(
        self, key: tuple[Hashable, int], header: Header, specs: memoryview, data: memoryview
    ) -> Message | None:
        message = self._unfinished.get(key) or self._begin(key, header)
        try:
            if not message.add(header, specs, data):
                return None
            message.require_all()
        except WireError:
            del self._unfinished[key]
            raise
        del self._unfinished[key]
        found = wire.unpack_specs(message.specs, message.total)
        return Message(header, wire.read_tensors(found, message.buffer.data))

    def _begin(self, key: tuple[Hashable, int], header: Header) -> _Unfinished:
        if header.total > self._max_peer_bytes:
            raise WireError(
                Problem.TOO_LARGE,
                f"the message has {header.total} bytes and at most {self._max_peer_bytes} are "
                "allowed",
            )
        sender = key[0]
        while self._bytes_of(sender) + header.total > self._max_peer_bytes:
            self._drop_oldest(sender)
        while self._unfinished and (
            len(self._unfinished) >= self._max_messages
            or self._bytes_of(None) + header.total > self._max_bytes
        ):
            senders = {sender} if self._bytes_of(sender) else {each for each, _ in self._unfinished}
            self._drop_oldest(max(senders, key=self._bytes_of))
        self._unfinished[key] = message = _Unfinished(header)
        return message

    def _bytes_of(self, sender: Hashable | None) -> int:
        """Return the bytes of a sender's incomplete messages; of all for None."""
        return sum(
            message.total
            for (other, _), message in self._unfinished.items()
            if sender is None or other == sender
        )

    def _drop_oldest(self, sender: Hashable) -> None:
        del self._unfinished[next(key for key in self._unfinished if key[0] == sender)]


def _whole(header: Header, specs: memoryview, data: memoryview) -> Message:
    if header.offset or len(data) != header.total:
        raise WireError(
            Problem.MALFORMED, f"{len(data)} bytes came and the header says {header.total}"
        )
    return Message(header, wire.read_tensors(wire.unpack_specs(specs, header.total), data))


def parts(header: Header, tensors: Tensors) -> list[list[bytes | memoryview]]:
    """Return the frames of every part of a message; large tensors are not copied."""
    specs = wire.lay_out(tensors)
    header.total = wire.body_size(specs)
    if header.total > wire.MAX_BODY:
        raise ValueError(f"A message of {header.total} bytes; at most {wire.MAX_BODY} are allowed.")
    found = wire.pieces(tensors, specs)
    header.parts = len(found)
    described = wire.pack_specs(specs)
    result: list[list[bytes | memoryview]] = []
    for number, (offset, data) in enumerate(found):
        header.part, header.offset = number, offset
        result.append([header.pack(), b"" if number else described, data])
    return result
