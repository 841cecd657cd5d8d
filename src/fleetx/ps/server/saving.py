"""Saving and loading at a worker's request, with little interruption of the training.

The state is copied between two requests, at the point that the saved model represents, and written
by a thread. In synchronous training the request names a step: every server waits until it has
applied it, and none can advance before the requesting worker does, so all save the same step.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleetx.checkpoint.atomic import inside
from fleetx.ps.server.state import ServerState
from fleetx.ps.tables.dense_table import DenseTable
from fleetx.ps.tables.table_files import SavedTable, save_part
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import Problem, WireError

Tell = Callable[[WireError | None], None]
# The saves of one worker that may be under way; each holds a copy of the state.
_MOST = 2


class Saver:
    """Writer of copies of the state in the background."""

    def __init__(self, index: int, servers: int) -> None:
        self._index = index
        self._servers = servers
        self._running: dict[tuple[int, int, int], threading.Thread] = {}
        self._finished: queue.SimpleQueue[tuple[tuple[int, int, int], WireError | None]] = (
            queue.SimpleQueue()
        )
        self._tell: dict[tuple[int, int, int], Tell] = {}

    def save(self, state: ServerState, message: Message, tell: Tell) -> None:
        """Start to save as requested; `tell` is called when the save is done."""
        header = message.header
        key = (header.worker, header.incarnation, header.request)
        folder, token = _place(wire.read_json(message.tensors))
        own = [worker for worker, *_ in self._running if worker == header.worker]
        if key not in self._running and len(own) >= _MOST:
            raise WireError(
                Problem.BAD_REQUEST,
                f"{_MOST} saves of this worker are under way; wait for one of them",
            )
        self._tell[key] = tell
        if key in self._running:
            return
        where = {"server": self._index, "servers": self._servers}
        parts = [(table.spec, table.state_dict()) for table in state.tables]

        def write() -> None:
            error = None
            try:
                for spec, tensors in parts:
                    save_part(folder, spec, tensors, token=token, **where)
            except (OSError, ValueError) as reason:
                error = WireError(Problem.BAD_REQUEST, f"{folder} cannot be written: {reason}")
            self._finished.put((key, error))

        thread = threading.Thread(target=write, name="save", daemon=True)
        self._running[key] = thread
        thread.start()

    def tell_finished(self) -> None:
        """Reply to the requests whose files are written."""
        while not self._finished.empty():
            key, error = self._finished.get()
            del self._running[key]
            self._tell.pop(key)(error)

    def close(self) -> None:
        """Wait for pending writes."""
        for thread in self._running.values():
            thread.join()


def _place(request: dict[str, Any]) -> tuple[Path, str]:
    path, token = request.get("path"), request.get("token", "")
    if not isinstance(path, str) or not path or not isinstance(token, str):
        raise WireError(Problem.BAD_REQUEST, "the folder to save to or load from is missing")
    if not Path(path).is_absolute():  # workers and servers may have different working folders
        raise WireError(Problem.BAD_REQUEST, f"{path!r:.200} is not the whole path of a folder")
    return Path(path), token


def load(state: ServerState, request: dict[str, Any], *, server: int, servers: int) -> None:
    """Replace the values of all tables with saved ones, of any number of servers; all or none."""
    folder, _ = _place(request)
    found = [
        SavedTable(inside(folder, table.spec.name)).state_for(
            table.spec, server=server, servers=servers
        )
        for table in state.tables
    ]
    for number, (table, tensors) in enumerate(zip(state.tables, found, strict=True)):
        table.load_state_dict(tensors)
        if isinstance(table, DenseTable):
            state.has_values.add(number)
