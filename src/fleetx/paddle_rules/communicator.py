"""Communicator: Paddle 1.x's object for a worker's communication with parameter servers.

The ops of a worker's program exchange gradients and parameters through the program's connection to
the servers. A communicator opens and closes that connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetx.fleet.servers.program_link import ServerLink
from fleetx.static.graph.program import Program


class Communicator:
    """The communicator of one worker's program."""

    def __init__(
        self,
        program: Program,
        mode: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        envs: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(program, Program):
            raise TypeError(f"program must be a Program, not {type(program).__name__}.")
        del mode, kwargs, envs  # recorded in the program
        self._program = program
        self._is_running = False  # of a program without servers

    @property
    def _link(self) -> ServerLink | None:
        link = self._program.binding.servers
        return link if isinstance(link, ServerLink) else None

    def start(self) -> None:
        """Connect to the servers, with which runs of the program then communicate."""
        if self._link is not None:
            self._link.start_exchange()
        self._is_running = True

    def stop(self) -> None:
        """Flush the queues; runs that would send fail until `start` is called again."""
        if self._link is not None:
            self._link.stop_exchange()
        self._is_running = False

    def is_running(self) -> bool:
        """Return whether the program is connected to servers."""
        return self._is_running if self._link is None else self._link.is_running
