"""What a worker asks of all servers besides tables: steps, barriers, saving, the end of the job.

`Client` adds the tables.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from fleetx.ps.client.network_thread import Network
from fleetx.ps.client.request import ClientSettings, Request
from fleetx.ps.tables.table_files import finish_save
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message, Tensors
from fleetx.ps.wire.messages import NO_STEP, Header, Kind
from fleetx.runtime import heartbeat


class JobRequests:
    """Connections to all servers of a job."""

    def __init__(
        self,
        endpoints: Sequence[str],
        worker: int,
        workers: int,
        settings: ClientSettings,
    ) -> None:
        if not endpoints:
            raise ValueError("A client needs the endpoint of at least one server (host:port).")
        if not 0 <= worker < workers:
            raise ValueError(
                f"Worker index {worker} is out of range: the job has {workers} workers."
            )
        self.worker, self.workers = worker, workers
        self._network = Network(endpoints, worker, workers, settings)
        self.servers = len(endpoints)
        """The number of servers."""
        self._barrier: int | None = None

    def _ask(
        self, server: int, kind: Kind, tensors: Tensors | None = None, **fields: Any
    ) -> Future[Message]:
        return self._network.submit(server, Request(Header(kind, **fields), tensors or []))

    def _ask_all(
        self, kind: Kind, value: dict[str, Any] | None = None, **fields: Any
    ) -> list[Message]:
        futures = [
            self._ask(server, kind, wire.json_body(value) if value is not None else None, **fields)
            for server in range(self.servers)
        ]
        return [future.result() for future in futures]

    @property
    def life(self) -> int:
        """A number unique to this process among all restarts of this worker."""
        return self._network.links[0].incarnation

    def welcomes(self) -> list[dict[str, Any]]:
        """Wait for all servers; return what each knows about this worker's earlier process."""
        return self._network.welcomes()

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
        self._ask(0, Kind.ARRIVE, wire.json_body(note) if note else None, step=self._barrier)
        waiting = self._ask(0, Kind.WAIT, wire.json_body({"barrier": self._barrier}))
        found = wire.read_json(waiting.result().tensors)
        return {int(worker): brought for worker, brought in found.items()}

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

    def close(self) -> None:
        """Close the connections without notifying the servers."""
        self._network.close()
