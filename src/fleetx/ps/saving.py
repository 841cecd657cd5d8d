"""Saving and loading on request of a worker, without stopping the training for long.

The state is copied between two requests, which is the marked point that a saved model stands for,
and written by a thread. In synchronous training the request names a step: every server waits until
it has applied it, and none can go further before the asking worker does, so all save the same step.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleetx.checkpoint import manifest
from fleetx.checkpoint.errors import FormatError
from fleetx.ps import wire
from fleetx.ps.assembly import Message
from fleetx.ps.state import ServerState
from fleetx.ps.wire import Problem, WireError

Tell = Callable[[WireError | None], None]


class Saver:
    """Writes copies of the state in the background."""

    def __init__(self, index: int, servers: int) -> None:
        self.index = index
        self.servers = servers
        self._running: dict[tuple[int, int, int], threading.Thread] = {}
        self._finished: queue.SimpleQueue[tuple[tuple[int, int, int], WireError | None]] = (
            queue.SimpleQueue()
        )
        self._tell: dict[tuple[int, int, int], Tell] = {}

    def save(self, state: ServerState, message: Message, tell: Tell) -> None:
        """Begin to save what a request asks for; `tell` is called when it is done."""
        header = message.header
        key = (header.worker, header.incarnation, header.request)
        self._tell[key] = tell
        if key in self._running:
            return
        folder = self.folder(wire.read_json(message.tensors))
        tensors, meta = state.capture()
        meta |= {"server": self.index, "servers": self.servers}

        def write() -> None:
            error = None
            try:
                manifest.save_state(folder, tensors, meta)
            except OSError as reason:
                error = WireError(Problem.STORAGE, f"{folder} cannot be written: {reason}")
            self._finished.put((key, error))

        thread = threading.Thread(target=write, name="save", daemon=True)
        self._running[key] = thread
        thread.start()

    def folder(self, request: dict[str, Any]) -> Path:
        """Return where this server's part of a saved model lies."""
        path = request.get("path")
        if not isinstance(path, str) or not path:
            raise WireError(Problem.BAD_REQUEST, "the path to save to or load from is missing")
        return Path(path) / f"server-{self.index}"

    def tell_finished(self) -> None:
        """Answer the requests whose files are written."""
        while not self._finished.empty():
            key, error = self._finished.get()
            del self._running[key]
            self._tell.pop(key)(error)

    def close(self) -> None:
        """Wait for what is being written."""
        for thread in self._running.values():
            thread.join()


def load(state: ServerState, request: dict[str, Any], saver: Saver) -> None:
    """Replace the values of all tables by saved ones."""
    folder = saver.folder(request)
    tensors, meta = manifest.load_state(folder)
    if meta.get("servers") != saver.servers:
        raise FormatError(str(folder), f"was saved by {meta.get('servers')} servers.")
    raise NotImplementedError
