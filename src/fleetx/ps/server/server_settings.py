"""The settings of a parameter server."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fleetx.ps.server.snapshots import Durability
from fleetx.ps.tables.table_spec import TableSpec
from fleetx.ps.wire import liveness
from fleetx.ps.wire.security import JobKeys


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """The settings of a parameter server."""

    workers: int = 1
    """The number of workers in the job."""
    index: int = 0
    """The index of this server."""
    servers: int = 1
    """The number of servers in the job."""
    specs: Sequence[TableSpec] = ()
    """Initial tables; workers may add more."""
    load_from: str | None = None
    """The folder from which new tables load values; see `fleetx.ps.tables.first_values`."""
    take_over: str | None = None
    """The folder in which the servers of the layout before hand over their state."""
    keys: JobKeys | None = None
    allow_insecure: bool = False
    """Listen without keys on an address reachable from other machines."""
    durability: Durability | None = None
    """Where the state is kept for a restart; None to keep it in memory only."""
    memory: int | None = None
    """The bytes of memory for the rows of its tables; None for no limit."""
    spill: str | None = None
    """The folder for rows beyond that; None for the system's folder for temporary files."""
    lease: float = liveness.LEASE
    """A worker that is silent for this many seconds is missing."""
    worker_wait: float = 120.0
    """A missing worker that others wait for ends the job after this many seconds."""
    elastic: bool = False
    """Outside of synchronous training, continue without such a worker until it returns."""
    linger: float = 1.0
    """How many seconds a finished server still replies to repeated requests."""
    drop: float = 0.0
    """For tests: the share of incoming messages to drop …"""
    drop_seed: int = 0
    """… at random, with this seed."""

    def __post_init__(self) -> None:
        if self.workers < 1 or not 0 <= self.index < self.servers:
            raise ValueError(
                f"Server {self.index} of {self.servers} for {self.workers} workers is invalid."
            )
        if self.memory is not None and self.memory < 1:
            raise ValueError(f"memory={self.memory} has no room for rows: give a size above 0.")
        if not 0.0 <= self.drop < 1.0:
            raise ValueError(f"drop={self.drop} is not a share below 1.")
