"""The worker's network thread, the only one that uses the connections to servers."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import zmq

from fleetx.ps.client.request import ClientSettings, Request
from fleetx.ps.client.server_connection import ServerConnection
from fleetx.ps.wire.assembly import Message
from fleetx.runtime.layout_folder import LayoutFolder

_log = logging.getLogger("fleetx.ps")
# The longest time between two checks of what is due: heartbeats, resends, timeouts. In a job with
# many servers and workers, frequent checks cost more than the messages of an idle connection.
_LONGEST_TICK = 0.25
# A longer pause of the network thread means that this process was suspended.
_PAUSE = 2.0
# Seconds between two checks of the addresses of the servers.
_LOOK_EVERY = 1.0


class Network:
    """Connections to all servers, and the thread that serves them."""

    def __init__(
        self,
        endpoints: Sequence[str],
        worker: int,
        workers: int,
        settings: ClientSettings,
        *,
        clock: int = -1,
        generation: int = 0,
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.links = [
            ServerConnection(index, endpoint, self._context, worker, workers, settings)
            for index, endpoint in enumerate(endpoints)
        ]
        for link in self.links:
            link.clock = clock
        self._tick = min(settings.resend / 4, _LONGEST_TICK)
        self._layout = LayoutFolder(settings.layout) if settings.layout else None
        self._generation = generation
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="servers", daemon=True)
        self._thread.start()
        # A script that fails closes nothing: a thread stopped by the interpreter in the middle of
        # torch would abort the process and hide its exit code.
        atexit.register(self.close)

    def submit(self, server: int, request: Request) -> Future[Message]:
        """Submit a request; its future receives the reply."""
        with self._lock:
            if self._closing:
                raise RuntimeError("This client is closed.")
            link = self.links[server]
            if link.error is not None:
                raise link.error
            link.queue.append(request)
        os.eventfd_write(self._wake, 1)
        return request.future

    def welcomes(self) -> list[dict[str, Any]]:
        """Wait for all servers; return the first message of each."""
        return [link.welcome.result() for link in self.links]

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            _log.exception("The connection to the parameter servers broke down.")
            for link in self.links:
                link.fail(RuntimeError(f"The connection to the servers broke down: {error!r}"))
            raise

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        for link in self.links:
            poller.register(link.socket, zmq.POLLIN)
            poller.register(link.monitor, zmq.POLLIN)
        before = looked = time.monotonic()
        ticked = 0.0
        while not self._closing:
            ready = dict(poller.poll(max(1, int(self._tick * 1000))))
            now = time.monotonic()
            if now - before > _PAUSE:
                for link in self.links:
                    link.excuse(now - before)
            before = now
            if self._wake in ready:
                os.eventfd_read(self._wake)
            is_due = now - ticked >= self._tick
            for link in self.links:
                if link.monitor in ready:
                    link.on_monitor()
                if link.socket in ready:
                    link.on_readable()
                link.flush()
                if is_due:
                    link.tick()
            if is_due:
                ticked = now
            if self._layout is not None and now - looked > _LOOK_EVERY:
                looked = now
                self._follow(self._layout)

    def _follow(self, files: LayoutFolder) -> None:
        """Connect to a server that was started again at another address."""
        try:
            layout = files.read()
        except (OSError, ValueError) as error:
            _log.warning("The addresses of the servers cannot be read: %s", error)
            return
        if layout is not None and layout.generation == self._generation:
            for link, endpoint in zip(self.links, layout.endpoints, strict=True):
                if endpoint != link.endpoint:
                    _log.warning("%s is at %s now.", link.name.capitalize(), endpoint)
                    link.move_to(endpoint)

    def close(self) -> None:
        """Stop the thread and close all connections."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        atexit.unregister(self.close)
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        for link in self.links:
            link.close()
        self._context.term()
        os.close(self._wake)
