"""Saving and loading at a worker's request, with little interruption of the training.

The state is copied between two requests, at the point that the saved model represents, and written
by a thread. In synchronous training the request names a step: every server waits until it has
applied it, and none can advance before the requesting worker does, so all save the same step.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fleetx.checkpoint.atomic import inside
from fleetx.ps.server.state import ServerState
from fleetx.ps.tables.dense_table import DenseTable
from fleetx.ps.tables.table_files import SavedTable, save_part
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import Problem, WireError

Tell = Callable[[BaseException | None], None]
"""Is given the error of a save, None for none."""
# The saves of one worker that may be under way; each holds a copy of the state.
_MOST = 2


class Saver:
    """Writer of copies of the state in the background."""

    def __init__(self, index: int, servers: int) -> None:
        self._index = index
        self._servers = servers
        self._running: dict[tuple[int, int, int], tuple[Future[None], Tell]] = {}
        self._threads = ThreadPoolExecutor(thread_name_prefix="save")

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
        if key in self._running:
            self._running[key] = self._running[key][0], tell
            return
        where = {"server": self._index, "servers": self._servers}
        parts = [(table.spec, table.state_dict()) for table in state.tables]

        def write() -> None:
            try:
                for spec, tensors in parts:
                    save_part(folder, spec, tensors, token=token, **where)
            except (OSError, ValueError) as reason:
                raise WireError(
                    Problem.BAD_REQUEST, f"{folder} cannot be written: {reason}"
                ) from reason

        self._running[key] = self._threads.submit(write), tell

    def tell_finished(self) -> None:
        """Reply to the requests whose files are written."""
        for key, (done, tell) in list(self._running.items()):
            if done.done():
                del self._running[key]
                tell(done.exception())

    def close(self) -> None:
        """Wait for pending writes."""
        self._threads.shutdown()


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
    for table, tensors in zip(state.tables, found, strict=True):
        table.check_state_dict(tensors)
    for number, (table, tensors) in enumerate(zip(state.tables, found, strict=True)):
        table.load_state_dict(tensors)
        if isinstance(table, DenseTable):
            state.has_values.add(number)
