"""The server: a socket, a loop, and the handler of requests between them."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable

from fleetx.ps.server.listener import Listener
from fleetx.ps.server.request_handler import RequestHandler
from fleetx.ps.server.server_settings import ServerSettings
from fleetx.ps.wire import security
from fleetx.ps.wire.liveness import PeerLostError

_TICK = 0.1
# A longer pause between two ticks means that the server was busy or suspended.
_PAUSE = 2.0
# Requests read from the socket before timers are checked.
_MANY = 256


class Server:
    """A parameter server. `run()` returns when all workers have finished."""

    def __init__(self, endpoint: str, settings: ServerSettings) -> None:
        security.check_server_keys(endpoint, settings.keys, settings.allow_insecure)
        self._settings = settings
        self._random = random.Random(settings.drop_seed)
        # Workers find a server that has its state; restoring it may take longer than they wait.
        self._handler = RequestHandler(settings)
        try:
            self._listener = Listener(endpoint, settings.keys)
        except OSError:
            self._handler.close()
            raise
        self._handler.connect(self._listener)
        self.endpoint = self._listener.endpoint
        self._last_tick = time.monotonic()

    def run(self) -> None:
        """Serve until all workers have finished; raise PeerLostError if one was lost."""
        try:
            with self._listener.open(self._handler.tell_alive):
                while not self._is_over():
                    self._round()
        finally:
            self._handler.close()
        if self._handler.failure is not None:
            raise PeerLostError(self._handler.failure)

    def stop(self) -> None:
        """Stop soon; may be called by a signal handler."""
        self._handler.ends_at = time.monotonic()

    def _is_over(self) -> bool:
        ends_at = self._handler.ends_at
        return ends_at is not None and time.monotonic() >= ends_at

    def _round(self) -> None:
        for frames in self._listener.receive(_TICK, _MANY):
            if self._settings.drop and self._random.random() < self._settings.drop:
                continue
            route, *contents = (frame.buffer for frame in frames)
            is_reader = security.is_reader(frames[-1], self._settings.keys)
            self._handler.receive(bytes(route), contents, is_reader=is_reader)
        now = time.monotonic()
        if now - self._last_tick >= _TICK:
            if now - self._last_tick > _PAUSE:
                # Messages that workers have sent in the meantime have not been read yet.
                self._handler.excuse(now - self._last_tick)
            self._last_tick = now
            self._handler.tick()


def run_server(
    endpoint: str, settings: ServerSettings, when_ready: Callable[[str], None] | None = None
) -> None:
    """Run a parameter server until the workers have finished.

    `when_ready` is called with its endpoint when it listens, with all of its state.

    SIGTERM ends the process as usual, but only after its files are consistent; the launcher sees
    that it was killed, and may restart it.
    """
    server = Server(endpoint, settings)
    if when_ready is not None:
        when_ready(server.endpoint)
    asked = threading.Event()

    def stop(*_: object) -> None:
        asked.set()
        server.stop()

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, stop) if is_main else None
    try:
        server.run()
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
    if asked.is_set():
        signal.raise_signal(signal.SIGTERM)
