"""Messages between the launchers of several machines: JSON, one object per line, over TCP.

Reading and writing never block; `Line.pump()` transfers what it can. Only plain data is accepted,
and a peer that sends anything else is disconnected.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import Any

_LONGEST = 1 << 20

Message = dict[str, Any]


class Line:
    """A connection to another launcher."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = sock
        self._inbox = b""
        self._outbox = b""
        self.closed = False
        self.last_heard = time.monotonic()

    @property
    def own_address(self) -> str:
        """Return this machine's address on this connection."""
        return str(self.socket.getsockname()[0])

    @property
    def peer_address(self) -> str:
        """Return the other machine's address."""
        return str(self.socket.getpeername()[0])

    def send(self, message: Message) -> None:
        """Queue a message; `pump()` sends it."""
        self._outbox += json.dumps(message).encode() + b"\n"
        self._write()

    def pump(self) -> list[Message]:
        """Send queued messages and return the messages that have arrived."""
        self._write()
        while not self.closed and len(self._inbox) <= _LONGEST:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                self.close()
                break
            if not data:
                self.close()
                break
            self._inbox += data
        *lines, self._inbox = self._inbox.split(b"\n")
        if lines:
            self.last_heard = time.monotonic()
        return self._decode(lines)

    def _decode(self, lines: list[bytes]) -> list[Message]:
        messages = []
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            if not isinstance(message, dict) or not isinstance(message.get("type"), str):
                self.close()  # not a launcher: the port is being probed
                break
            messages.append(message)
        if len(self._inbox) > _LONGEST:
            self.close()
        return messages

    def _write(self) -> None:
        while self._outbox and not self.closed:
            try:
                sent = self.socket.send(self._outbox)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            self._outbox = self._outbox[sent:]

    def flush(self, patience: float = 1.0) -> None:
        """Wait briefly until queued messages are sent, before closing."""
        deadline = time.monotonic() + patience
        with contextlib.suppress(OSError):
            self.socket.settimeout(patience)
            while self._outbox and not self.closed and time.monotonic() < deadline:
                self._outbox = self._outbox[self.socket.send(self._outbox) :]

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        self.socket.close()
