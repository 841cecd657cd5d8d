"""A worker's requests to all servers besides tables: steps, barriers, saving, end of the job.

`Client` adds the tables.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from fleetx.ps.client.job_connections import Connections
from fleetx.ps.tables.table_files import finish_save
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import NO_STEP, Kind
from fleetx.runtime import heartbeat

# Seconds between two checks whether tables move, at a barrier.
_MOMENT = 0.1


class JobRequests(Connections):
    """Connections to all servers of a job."""

    _barrier: int | None = None
    when_moving: Callable[[], None] | None = None
    """Called by a worker that waits for others, in case tables move."""

    # -- steps and other workers ----------------------------------------------------------------

    def start_commit(self, step: int) -> list[Future[Message]]:
        """Notify all servers that every server has this worker's gradients of a step."""
        return [self._ask(server, Kind.COMMIT, step=step) for server in range(self.servers)]

    def agree_on_norm(self, step: int) -> None:
        """Sum the servers' parts of a step's squared norm and send the norm to all of them."""
        parts = self._ask_all(Kind.WAIT, {"squares": step})
        norm = math.sqrt(sum(part.only().item() for part in parts))
        self._ask_all(Kind.NORM, step=step, norm=norm)

    def wait_for_step(self, step: int) -> None:
        """Wait until all servers have applied this many steps."""
        self._ask_all(Kind.WAIT, {"version": step})

    def tell_clock(self, step: int) -> list[Future[Message]]:
        """Notify the servers that all pushes up to this step have been sent."""
        for link in self._network.links:
            link.clock = step
        return [self._ask(server, Kind.CLOCK, step=step) for server in range(self.servers)]

    def barrier(self) -> None:
        """Wait until all other workers have reached this point."""
        with heartbeat.collective(heartbeat.BARRIER):
            self.gather({})

    def gather(self, note: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """Wait until all other workers have reached this point; return their notes by worker.

        Notes are small and JSON-serializable; a worker that has finished contributes none.
        """
        if self._barrier is None:
            self._barrier = self.welcomes()[0]["barriers"]
        self._barrier += 1
        waiting = self._arrive(note)
        while self.when_moving is not None and not _is_over(waiting):
            before = self.generation
            self.when_moving()
            if self.generation != before:
                waiting = self._arrive(note)
        found = wire.read_json(waiting.result().tensors)
        return {int(worker): brought for worker, brought in found.items()}

    def _arrive(self, note: dict[str, Any]) -> Future[Message]:
        """Report that this worker has reached its barrier; the result is the notes of all
        workers.
        """
        self._ask(0, Kind.ARRIVE, wire.json_body(note) if note else None, step=self._barrier)
        return self._ask(0, Kind.WAIT, wire.json_body({"barrier": self._barrier}))

    # -- the job --------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, step: int = NO_STEP) -> None:
        """Save all tables, on all servers after the same step if one is given.

        The folder must be visible to this worker and all servers under this name.
        """
        folder = str(Path(path).absolute())
        token = secrets.token_hex(8)
        self._ask_all(Kind.SAVE, {"path": folder, "token": token}, step=step)
        for table in self.status()[0]["tables"]:
            finish_save(folder, table, servers=self.servers, token=token)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace the values of all tables with saved ones; called by one worker, between steps."""
        self._ask_all(Kind.LOAD, {"path": str(Path(path).absolute())})

    def status(self) -> list[dict[str, Any]]:
        """Return the status of every server."""
        return [wire.read_json(message.tensors) for message in self._ask_all(Kind.STATUS)]

    def finish(self) -> None:
        """Disconnect from all servers, which shut down after the last worker, and close."""
        self._ask_all(Kind.FINISH)
        self.close()

    def stop_servers(self) -> None:
        """Shut down all servers, regardless of other workers, and close."""
        self._ask_all(Kind.STOP)
        self.close()


def _is_over(future: Future[Message]) -> bool:
    """Wait for a moment; return whether the future has a result by then."""
    return bool(wait([future], _MOMENT).done)
