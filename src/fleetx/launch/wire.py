"""Messages between the launchers of several machines: JSON, one object per line, over TCP.

Reading and writing never block; `Line.pump()` moves what can be moved. Only plain data is read,
and a peer that sends anything else is cut off.
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
    """One connection to another launcher."""

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
        """Return this machine's address as the connection uses it."""
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
        """Send what waits, and return the messages that have arrived."""
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
                self.close()  # no launcher: somebody probes the port
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
        """Wait a moment until what was queued is sent: last words before closing."""
        deadline = time.monotonic() + patience
        with contextlib.suppress(OSError):
            self.socket.settimeout(patience)
            while self._outbox and not self.closed and time.monotonic() < deadline:
                self._outbox = self._outbox[self.socket.send(self._outbox) :]

    def close(self) -> None:
        """End the connection."""
        self.closed = True
        self.socket.close()
