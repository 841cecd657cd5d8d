"""Communicator: Paddle 1.x's object for the exchange of a worker with parameter servers.

The ops of a worker's program exchange gradients and parameters by themselves, in all modes. Scripts
still start and stop a communicator, and ask whether it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        self._is_running = False

    def start(self) -> None:
        """Begin: the program's runs exchange with the servers."""
        self._is_running = True

    def stop(self) -> None:
        """End; what is on its way still arrives."""
        self._is_running = False

    def is_running(self) -> bool:
        """Tell whether `start` was called, and `stop` not yet."""
        return self._is_running
