"""What a program asks of the parameter servers it trains with.

Programs know no servers: whoever writes the ops of `ops/server_ops.py` into a program gives it an
object of this kind, which sends and fetches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from fleetx.static.graph.program import Program
    from fleetx.static.run.scope import Scope


class Servers(Protocol):
    """A program's link to its parameter servers."""

    def give_rows(self, rows: Mapping[str, Tensor], scope: Scope) -> None:
        """Keep the first rows of tables for the servers; they leave the scope."""

    def startup_was_run(self, scope: Scope) -> None:
        """Note that variables have first values."""

    def expect(self, program: Program, feed: Mapping[str, Any]) -> None:
        """Prefetch the rows of the next batch, if its feed is known."""

    def pull_rows(
        self,
        tables: Sequence[str],
        table_of_ids: Sequence[int],
        paddings: Sequence[int],
        ids: Sequence[Tensor],
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return per table the rows of its unique ids, per ids their places, per table the ids."""

    def push_rows(self, table: str, keys: Tensor, gradient: Tensor, rate: float | None) -> None:
        """Hand over the gradients of rows."""

    def push_dense(self, gradients: Mapping[str, Tensor], rate: float | None) -> None:
        """Hand over the gradients of parameters."""

    def end_step(self) -> None:
        """Note that all gradients of the step have been handed over."""

    def pull_dense(self, values: Mapping[str, Tensor]) -> None:
        """Bring parameters up to date, in place."""

    def serve(self) -> None:
        """Be a server until the workers have finished."""

    def close(self) -> None:
        """Send what is still on its way, and end."""
