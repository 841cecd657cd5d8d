"""What hostile frames do to a request handler: its replies, and the lines that they reach."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from fleetx.ps.server import request_handler
from fleetx.ps.server.request_handler import RequestHandler
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message, Tensors, parts
from fleetx.ps.wire.messages import Header, Kind

_PS = str(Path(request_handler.__file__).parents[1])


class Outbox:
    """Counts replies, and encodes them as a socket would."""

    def __init__(self) -> None:
        self.sent = 0
        self.last: dict[bytes, Header] = {}
        self.newest: Header | None = None
        self.failed: list[bytes] = []
        """Replies to requests that were accepted, logged, and then failed."""

    def send(self, route: bytes, header: Header, tensors: Tensors) -> None:
        """Encode a message."""
        ((_, _, data), *_) = parts(header, tensors)
        if header.kind == Kind.ERROR and b"could not be applied" in bytes(data):
            self.failed.append(bytes(data))
        self._keep(route, header)

    def send_frames(self, route: bytes, frames: list[bytes]) -> None:
        """Keep a message that is already encoded."""
        self._keep(route, wire.unpack_header(frames[0]))

    def _keep(self, route: bytes, header: Header) -> None:
        self.sent += 1
        self.last[route] = self.newest = header

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: there are no heartbeats."""
        return contextlib.nullcontext()


class Watched(RequestHandler):
    """A request handler that remembers the last message that passed the checks of the wire."""

    passed: Header | None = None

    def _handle(self, message: Message, route: bytes) -> None:
        self.passed = message.header
        super()._handle(message, route)


class Lines:
    """The lines of fleetx.ps that messages have reached."""

    def __init__(self) -> None:
        self.seen: set[tuple[Any, int]] = set()
        self._new = False

    def _call(self, frame: Any, event: str, value: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(_PS) else None

    def _line(self, frame: Any, event: str, value: Any) -> Any:
        if event == "line":
            place = (frame.f_code, frame.f_lineno)
            if place not in self.seen:
                self.seen.add(place)
                self._new = True
        return self._line

    @contextlib.contextmanager
    def traced(self) -> Any:
        """Record the lines that run."""
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def found_new(self) -> bool:
        """Return whether new lines were recorded since the last call."""
        new, self._new = self._new, False
        return new
