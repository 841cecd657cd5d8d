"""The interface of parameter servers for techniques.

The session of a job with servers passes such an object to its techniques; other jobs have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fleetx.ps.client.client import Client
    from fleetx.ps.modes.mode import Mode
    from fleetx.ps.modes.server_mode import ServerMode
    from fleetx.ps.tables.table_spec import DenseTableSpec
    from fleetx.step.program_step import WrittenUpdate


class WrittenTables(Protocol):
    """The tables that the parameters of a program have become."""

    @property
    def dense(self) -> Sequence[Sequence[DenseTableSpec]]:
        """Every dense table, as one specification per server."""

    @property
    def sparse(self) -> Any:
        """The tables with rows, by name."""


class JobServers(Protocol):
    """The parameter servers of a job, on the side of a worker."""

    @property
    def mode(self) -> ServerMode:
        """The training mode; raises ValueError if the strategy does not set it."""

    @property
    def count(self) -> int:
        """The number of servers."""

    def client(self) -> Client:
        """Return the connection to all servers, made when it is first needed."""

    def begin(self, mode: Mode) -> None:
        """Register the exchange of a model, for saving and stopping."""

    def gather(self, value: float) -> list[float]:
        """Return the numbers of all workers, which must all call it, if steps are synchronous;
        otherwise only this worker's.
        """

    def write_programs(self, written: WrittenUpdate) -> WrittenTables:
        """Rewrite programs with updates for the role of this process."""
