"""The interface between a program and its parameter servers.

A program itself has no connection to the servers: the code that adds the ops of `ops/server_ops.py`
also attaches a `Servers` object, which pushes and pulls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from fleetx.static.graph.program import Program
    from fleetx.static.run.scope import Scope


class Servers(Protocol):
    """A program's connection to its parameter servers."""

    def give_rows(self, rows: Mapping[str, Tensor], scope: Scope) -> None:
        """Send the initial rows of tables to the servers, and remove them from the scope."""

    def startup_was_run(self, scope: Scope) -> None:
        """Record that variables have been initialised."""

    def expect(self, program: Program, feed: Mapping[str, Any]) -> None:
        """Prefetch the rows of the next batch, if its feed is known."""

    def pull_rows(
        self,
        tables: Sequence[str],
        table_of_ids: Sequence[int],
        paddings: Sequence[int],
        ids: Sequence[Tensor],
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return the rows of unique ids per table, inverse indices per input, and unique ids."""

    def push_rows(self, table: str, keys: Tensor, gradient: Tensor, rate: float | None) -> None:
        """Push the gradients of rows."""

    def keep_rows(self, table: str, keys: Tensor, gradient: Tensor, rate: float | None) -> None:
        """Keep the gradients of rows for the end of the step, several runs later."""

    def agree_on_overflow(self, overflow: bool) -> bool:
        """Return whether the step overflowed on a worker that others wait for."""

    def push_dense(self, gradients: Mapping[str, Tensor], rate: float | None) -> None:
        """Push the gradients of parameters."""

    def end_step(self) -> None:
        """Record that all gradients of the step have been pushed."""

    def pull_dense(self, values: Mapping[str, Tensor]) -> None:
        """Pull parameters, in place."""

    def serve(self) -> None:
        """Serve until the workers have finished."""

    def close(self) -> None:
        """Flush pending pushes and disconnect."""
