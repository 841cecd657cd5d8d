"""A server's socket, and its heartbeats while the server is busy.

The main thread owns the socket, except during long work (`busy`): then a second thread may use it
to send a heartbeat to all workers once a second. If the process is suspended, both stop.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import zmq

from fleetx.ps.wire import assembly, liveness, security
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Tensors
from fleetx.ps.wire.messages import Header
from fleetx.ps.wire.security import JobKeys

# Milliseconds until a peer must have shown the job's key.
_HANDSHAKE = 5000
# Messages of one peer that are read ahead.
_QUEUED = 64


class Listener:
    """A ROUTER socket that rejects oversized frames and, with keys, unknown peers."""

    def __init__(self, endpoint: str, keys: JobKeys | None) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._guard = security.guard(self._context, keys) if keys else None
        self._socket = self._context.socket(zmq.ROUTER)
        # What a peer can make the server hold in memory before it has shown the job's key.
        self._socket.maxmsgsize = wire.MAX_FRAME
        self._socket.handshake_ivl = _HANDSHAKE
        # The rest of a peer's messages waits in its own socket.
        self._socket.rcvhwm = _QUEUED
        self._socket.sndhwm = 0
        self._socket.linger = 1000
        self._socket.ipv6 = "[" in endpoint
        # Held by the thread that currently owns the socket.
        self._lock = threading.Lock()
        if keys:
            security.secure_server(self._socket, keys)
        try:
            self._socket.bind(f"tcp://{endpoint}")
        except zmq.ZMQError as error:
            self.close()
            raise OSError(f"A server cannot listen at {endpoint}: {error}.") from error
        bound = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.endpoint = bound.removeprefix("tcp://")

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        if self._guard is not None:
            self._guard.stop()
        self._context.term()

    @contextlib.contextmanager
    def open(self, tell: Callable[[], None]) -> Iterator[None]:
        """Own the socket; `tell` is called periodically while the owner is busy."""
        ended = threading.Event()
        pulse = threading.Thread(target=self._pulse, args=(ended, tell), name="pulse", daemon=True)
        try:
            with self._lock:
                pulse.start()
                yield
        finally:
            ended.set()
            pulse.join()
            self.close()

    def _pulse(self, ended: threading.Event, tell: Callable[[], None]) -> None:
        while not ended.wait(liveness.HEARTBEAT):
            if self._lock.acquire(timeout=liveness.HEARTBEAT / 2):
                try:
                    tell()
                finally:
                    self._lock.release()

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Release the socket during work that may take long."""
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()

    def receive(self, seconds: float, most: int) -> Iterator[list[Any]]:
        """Yield the frames of messages that have arrived or arrive within the timeout."""
        if self._socket.poll(int(seconds * 1000)):
            for _ in range(most):
                try:
                    yield self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
                except zmq.Again:  # the sender is gone
                    return
                if not int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                    return

    def send(self, route: bytes, header: Header, tensors: Tensors) -> None:
        """Send a message, in as many parts as necessary."""
        for frames in assembly.parts(header, tensors):
            self._socket.send_multipart([route, *frames], copy=False)

    def send_frames(self, route: bytes, frames: list[bytes]) -> None:
        """Send a message that is already encoded."""
        self._socket.send_multipart([route, *frames])
