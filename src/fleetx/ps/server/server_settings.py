"""How a parameter server runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fleetx.ps.server.snapshots import Durability
from fleetx.ps.tables.table_spec import TableSpec
from fleetx.ps.wire import liveness
from fleetx.ps.wire.security import JobKeys


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """How a server runs."""

    workers: int = 1
    """The number of workers of the job."""
    index: int = 0
    """The number of this server."""
    servers: int = 1
    """The number of servers of the job."""
    specs: Sequence[TableSpec] = ()
    """Tables to begin with; workers may add more."""
    load_from: str | None = None
    """The folder whose values new tables take; see `fleetx.ps.tables.first_values`."""
    keys: JobKeys | None = None
    allow_insecure: bool = False
    """Listen without keys on an address that other machines can reach."""
    durability: Durability | None = None
    """Where the state is kept for a restart; None keeps it in memory only."""
    lease: float = liveness.LEASE
    """A worker that has been silent for so many seconds is missing."""
    worker_wait: float = 120.0
    """A missing worker that others wait for ends the job after so many seconds."""
    linger: float = 1.0
    """Seconds in which a server that is done still answers repeated questions."""
    drop: float = 0.0
    """For tests: the share of incoming messages that is thrown away …"""
    drop_seed: int = 0
    """… at random, by this seed."""

    def __post_init__(self) -> None:
        if self.workers < 1 or not 0 <= self.index < self.servers:
            raise ValueError(
                f"Server {self.index} of {self.servers} for {self.workers} workers cannot be."
            )
        if not 0.0 <= self.drop < 1.0:
            raise ValueError(f"drop={self.drop} is not a share below 1.")
