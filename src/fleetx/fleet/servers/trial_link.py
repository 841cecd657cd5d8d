"""A read-only link to parameter servers, for the candidates of `auto`.

Rows are pulled from the servers as in training, so that a trial includes that wait. Nothing is
pushed, and no worker waits for another, so that the tables are unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fleetx.static.graph.program import Program
from fleetx.static.run.scope import Scope
from fleetx.static.run.server_link import Servers


class TrialLink:
    """Reads rows through the link of the program that trains."""

    def __init__(self, link: Servers) -> None:
        self.pull_rows = link.pull_rows  # as in training

    def give_rows(self, rows: Mapping[str, Tensor], scope: Scope) -> None:
        """Drop initial rows: the servers have theirs."""
        for name in rows:
            scope.var(name).value = None

    def startup_was_run(self, scope: Scope) -> None:
        """Do nothing: the parameters are those of the program that trains."""

    def expect(self, program: Program, feed: Mapping[str, Any]) -> None:
        """Prefetch nothing: every run has the same batch."""

    def push_rows(self, table: str, keys: Tensor, gradient: Tensor, rate: float | None) -> None:
        """Push nothing."""

    def keep_rows(self, table: str, keys: Tensor, gradient: Tensor, rate: float | None) -> None:
        """Keep nothing."""

    def agree_on_overflow(self, overflow: bool) -> bool:
        """Return this worker's own result."""
        return overflow

    def push_dense(self, gradients: Mapping[str, Tensor], rate: float | None) -> None:
        """Push nothing."""

    def end_step(self) -> None:
        """Do nothing."""

    def pull_dense(self, values: Mapping[str, Tensor]) -> None:
        """Leave the parameters as they are."""

    def serve(self) -> None:
        """Do nothing: a trial runs on a worker."""

    def close(self) -> None:
        """Do nothing: the program that trains has the connection."""
