"""Many clients in one thread: each sends its request again as soon as it has a response.

Requests are encoded once and responses are only split, so that the clients leave the CPU to the
server.
"""

from __future__ import annotations

import re
import selectors
import socket
import time

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.I)
BLOCK = 1 << 18


def request(path: str, body: bytes, kind: str) -> bytes:
    """Return a POST request as bytes."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Content-Type: {kind}",
        f"Accept: {kind}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Client:
    """A connection with its request."""

    def __init__(self, port: int, message: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.message = message
        self.unsent = memoryview(b"")
        self.received = b""
        self.answer = b""

    def begin(self) -> None:
        """Start to send the request."""
        self.unsent = memoryview(self.message)
        self.received = b""

    def go_on(self) -> bool:
        """Send or receive what is possible; return whether the response is complete."""
        if self.unsent:
            self.unsent = self.unsent[self.socket.send(self.unsent) :]
            return False
        block = self.socket.recv(BLOCK)
        if not block:
            raise RuntimeError("the server has closed a connection.")
        self.received += block
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return False
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the server answered {head.splitlines()[0]!r}: {body[:300]!r}")
        length = LENGTH.search(head)
        assert length is not None  # all servers here send it
        if len(body) < int(length[1]):
            return False
        self.answer = body
        return True


class Load:
    """Clients of a server, each with its own request."""

    def __init__(self, port: int, messages: list[bytes]) -> None:
        self.clients = [Client(port, message) for message in messages]

    def run(self, count: int) -> float:
        """Send `count` requests in total and return the seconds until the last response."""
        left = count
        with selectors.EpollSelector() as selector:
            begin = time.perf_counter()
            for client in self.clients[:count]:
                client.begin()
                left -= 1
                selector.register(client.socket, selectors.EVENT_WRITE, client)
            while selector.get_map():
                for key, _ in selector.select():
                    left = self._step(selector, key, left)
            return time.perf_counter() - begin

    def _step(self, selector: selectors.BaseSelector, key: selectors.SelectorKey, left: int) -> int:
        client: Client = key.data
        complete = client.go_on()
        wanted = selectors.EVENT_WRITE if client.unsent else selectors.EVENT_READ
        if complete and left:
            client.begin()
            left -= 1
            wanted = selectors.EVENT_WRITE
        elif complete:
            selector.unregister(client.socket)
            return left
        if wanted != key.events:
            selector.modify(client.socket, wanted, client)
        return left

    def answers(self) -> list[bytes]:
        """Return the last response of each client."""
        return [client.answer for client in self.clients]

    def close(self) -> None:
        """Close all connections."""
        for client in self.clients:
            client.socket.close()
