"""A worker's connections to all servers of a job; they can switch to other servers.

Tables can move to another number of servers during a job (`fleetx.ps.modes.relocation`): a worker
then has connections to the servers that take over, and leaves the old ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from fleetx.ps.client.network_thread import Network
from fleetx.ps.client.request import ClientSettings, Request
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message, Tensors
from fleetx.ps.wire.messages import Header, Kind
from fleetx.runtime.layout_folder import LayoutFolder, ServerLayout


class Connections:
    """Requests to one or all servers."""

    def __init__(
        self, endpoints: Sequence[str], worker: int, workers: int, settings: ClientSettings
    ) -> None:
        if not endpoints:
            raise ValueError("A client needs the endpoint of at least one server (host:port).")
        if not 0 <= worker < workers:
            raise ValueError(
                f"Worker index {worker} is out of range: the job has {workers} workers."
            )
        self.worker, self.workers = worker, workers
        self._settings = settings
        self.layout = LayoutFolder(settings.layout) if settings.layout else None
        """The files by which tables move to other servers; None if they do not."""
        found = self.layout.read() if self.layout is not None else None
        layout = found or ServerLayout(0, tuple(endpoints), len(endpoints))
        self.generation = layout.generation
        """How often tables have moved to other servers."""
        self.cut = layout.cut
        """The number of servers for which the specifications of dense tables are made."""
        self.servers = len(layout.endpoints)
        """The number of servers."""
        self._network = Network(
            layout.endpoints, worker, workers, settings, generation=layout.generation
        )
        self._successor: Network | None = None

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

    def check(self) -> None:
        """Raise the error of a server that is lost."""
        for link in self._network.links:
            if link.error is not None:
                raise link.error

    def close(self) -> None:
        """Close the connections without notifying the servers."""
        self._network.close()
        if self._successor is not None:
            self._successor.close()

    # -- other servers --------------------------------------------------------------------------

    @property
    def is_moving(self) -> bool:
        """Whether a server has reported that tables move."""
        return any(link.is_moving for link in self._network.links)

    def tell_move(self, generation: int, step: int) -> None:
        """Announce a move before this step; without a step, report that this worker has stopped
        for it.
        """
        self._ask_all(Kind.MOVE, {"generation": generation}, step=step)

    def hand_over(self, folder: Path) -> None:
        """Make all servers write their state, once all workers have stopped."""
        self._ask_all(Kind.HAND_OVER, {"path": str(folder.absolute())})

    def meet(self, layout: ServerLayout) -> None:
        """Wait for the servers that take over."""
        old = self._network.links[0]
        settings = dataclasses.replace(self._settings, incarnation=old.incarnation)
        self._successor = Network(
            layout.endpoints,
            self.worker,
            self.workers,
            settings,
            clock=old.clock,
            generation=layout.generation,
        )
        self._successor.welcomes()

    def switch_to(self, layout: ServerLayout) -> None:
        """Leave all servers for those that have taken over."""
        if self._successor is None:
            self.meet(layout)
        assert self._successor is not None
        self._ask_all(Kind.FINISH)
        self._network.close()
        self._network, self._successor = self._successor, None
        self.servers, self.generation = len(layout.endpoints), layout.generation
