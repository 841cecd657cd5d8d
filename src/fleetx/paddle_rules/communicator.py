"""Communicator: Paddle 1.x's object for the exchange of a worker with parameter servers.

The ops of a worker's program exchange gradients and parameters through the program's link to the
servers. A communicator starts and stops that link.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetx.fleet.servers.program_link import ServerLink
from fleetx.static.graph.program import Program


class Communicator:
    """The exchange of one worker's program."""

    def __init__(
        self,
        program: Program,
        mode: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        envs: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(program, Program):
            raise TypeError(f"program must be a Program, not {type(program).__name__}.")
        del mode, kwargs, envs  # the program knows
        self._program = program
        self._is_running = False  # of a program without servers, which has nothing to exchange

    @property
    def _link(self) -> ServerLink | None:
        link = self._program.binding.servers
        return link if isinstance(link, ServerLink) else None

    def start(self) -> None:
        """Connect to the servers; the program's runs exchange with them."""
        if self._link is not None:
            self._link.start_exchange()
        self._is_running = True

    def stop(self) -> None:
        """Send what is queued; until `start` is called again, runs that would send fail."""
        if self._link is not None:
            self._link.stop_exchange()
        self._is_running = False

    def is_running(self) -> bool:
        """Return whether the program exchanges with servers."""
        return self._is_running if self._link is None else self._link.is_running
