"""The composed step of a program: what `minimize` writes, in the order of the stages.

Techniques wrap or replace `optimizer` (precision, memory, update), say how gradients are exchanged
(`synchronise`), and may append ops behind the update (`after_update`). Ops run the same functions
that the stages of PyTorch modules call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from fleetx.comm.gradient_all_reduce import GradientExchange
from fleetx.static.graph.program import Program
from fleetx.static.run.scope import Scope
from fleetx.step.slots import FixedSlots
from fleetx.step.stages import GradientSync

Pairs = list[tuple[Any, Any]]


class ParameterAverage(Protocol):
    """What exchanges parameters behind some updates only."""

    @property
    def counters(self) -> Sequence[str]:
        """Two variables that are equal in the runs behind which parameters are equal; none if they
        are never known to be."""

    @property
    def save_wait(self) -> float:
        """Seconds that a save waits for all workers to average first."""

    def count(self, scope: Scope) -> int:
        """Return the number of updates so far, 0 if nobody counts them."""

    def behind(self, scope: Scope) -> int:
        """Return how many updates there were since parameters were equal on all workers."""

    def synchronize(self, scope: Scope) -> None:
        """Make parameters in a scope equal on all workers, which must all call it."""


@dataclass
class ProgramStep(FixedSlots):
    """How a program is made to train on all workers."""

    trains: ClassVar[str] = "program"

    optimizer: Any
    """The user's optimizer, wrapped or replaced by techniques."""
    synchronise: Callable[[Program, Pairs], None] | None
    """Writes the exchange of gradients behind the backward pass; None: there is none, or the
    optimizer writes it itself."""
    updates: Any = None
    """The optimizer that writes the updates, without what techniques wrap around it."""
    grad_sync: GradientSync | None = None
    """The stage that averages gradients, if it is one that works on tensors of a scope (a
    `NamedExchange`): one op runs it, between the backward pass and clipping."""
    grad_sync_by: tuple[str, str] = ("", "{}")
    """The technique that put it there, and its settings as JSON."""
    exchange: GradientExchange | None = None
    """How gradients that are summed during backward travel."""
    starts: Callable[[Program], None] | None = None
    """Writes into the startup program that all workers start with the same values; None: there is
    one worker, or they get them elsewhere."""
    update_condition: str | None = None
    """The boolean variable that tells in which runs parameters are updated; None: in all."""
    parameter_average: ParameterAverage | None = None
    """How parameters become equal between two exchanges of them; None: they always are."""
    after_update: list[Callable[[Program, Program, Any], None]] = field(default_factory=list)
    """Write ops behind the update; called with the main and the startup program and the loss."""

    def __post_init__(self) -> None:
        self._fix_slots()
