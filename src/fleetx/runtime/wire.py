"""Messages of launchers to each other and to workers: framed, bounded and authenticated, over TCP.

Both sides first send a random number; the key of the connection is made of both and of the job's
secret. A frame is a length, a MAC of its number, direction and content, and the content, a JSON
object. A frame that does not verify, is too long or arrives too late closes the connection before
it is parsed. A job without a secret of its own (--job_secret, --server_keys) uses a well-known one:
then frames are still bounded, but whoever knows the protocol can join. Reading and writing never
block; `Line.pump()` transfers what it can.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from typing import Any

LONGEST = 4 << 20
"""The bytes of a message."""
LONGEST_TEXT = LONGEST // 8
"""The characters of a text in a message, each of which may take six bytes."""
_MARK = b"FXL3"
_NONCE = 16
_HELLO = len(_MARK) + _NONCE
_MAC = 32
_LENGTH = struct.Struct("<I")

Message = dict[str, Any]


class Line:
    """A connection to a launcher; `is_root` on the side that accepted it."""

    def __init__(self, sock: socket.socket, secret: bytes = b"", *, is_root: bool) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = sock
        self._secret = secret
        self._is_root = is_root
        self._nonce = secrets.token_bytes(_NONCE)
        self._key: bytes | None = None
        self._unsent: list[bytes] = []
        """Messages that wait for the key."""
        self._sent = self._received = 0
        self._inbox = b""
        self._outbox = _MARK + self._nonce
        self.closed = False
        self.opened = self.last_heard = time.monotonic()
        self._write()

    @property
    def is_verified(self) -> bool:
        """Whether the peer has shown that it has the job's secret."""
        return self._received > 0

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
        content = json.dumps(message).encode()
        if len(content) > LONGEST:
            raise ValueError(f"a message has {len(content)} bytes; at most {LONGEST} are allowed.")
        self._unsent.append(content)
        self._seal()
        self._write()

    def _seal(self) -> None:
        if self._key is None:
            return
        for content in self._unsent:
            mac = self._mac(self._is_root, self._sent, content)
            self._outbox += _LENGTH.pack(len(content)) + mac + content
            self._sent += 1
        self._unsent.clear()

    def _mac(self, by_root: bool, number: int, content: bytes) -> bytes:
        assert self._key is not None
        about = struct.pack("<?Q", by_root, number)
        return hmac.digest(self._key, about + content, "sha256")

    def pump(self) -> list[Message]:
        """Send queued messages and return the messages that have arrived."""
        self._write()
        messages: list[Message] = []
        while not self.closed:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                self.close()
                break
            if not data:
                self.close()
            self._inbox += data
            messages += self._decode()
        if messages:
            self.last_heard = time.monotonic()
        return messages

    def _decode(self) -> list[Message]:
        """Take all complete frames from the inbox, and close at the first that does not verify."""
        messages: list[Message] = []
        if self._key is None and not self._meet():
            return messages
        while len(self._inbox) >= _LENGTH.size + _MAC:
            (size,) = _LENGTH.unpack_from(self._inbox)
            if size > LONGEST:
                self.close()
                break
            end = _LENGTH.size + _MAC + size
            if len(self._inbox) < end:
                break
            mac = self._inbox[_LENGTH.size : _LENGTH.size + _MAC]
            content = self._inbox[_LENGTH.size + _MAC : end]
            self._inbox = self._inbox[end:]
            expected = self._mac(not self._is_root, self._received, content)
            message = _parse(content) if hmac.compare_digest(mac, expected) else None
            if message is None:
                self.close()  # not a launcher of this job: the port is being probed
                break
            self._received += 1
            messages.append(message)
        return messages

    def _meet(self) -> bool:
        """Make the key from both sides' random numbers; return whether it is there."""
        if not _MARK.startswith(self._inbox[: len(_MARK)]):
            self.close()
        if self.closed or len(self._inbox) < _HELLO:
            return False
        other = self._inbox[len(_MARK) : _HELLO]
        self._inbox = self._inbox[_HELLO:]
        nonces = self._nonce + other if self._is_root else other + self._nonce
        self._key = hmac.digest(self._secret or _MARK, nonces, "sha256")
        self._seal()
        self._write()
        return True

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


def _parse(content: bytes) -> Message | None:
    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        return None
    return message


def secret_of(*sources: bytes) -> bytes:
    """Return the secret of a job from what all of its machines have; empty if they have nothing."""
    given = [source for source in sources if source]
    return hashlib.sha256(b"fleetrun\0" + b"\0".join(given)).digest() if given else b""
