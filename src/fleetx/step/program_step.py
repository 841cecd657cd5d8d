"""The composed step of a program: the slots that `minimize` writes, one after another.

    precision   the loss to differentiate       memory  how the backward pass is appended
    grad_sync   sums over runs (gradient_merge) and over workers
    precision   can the gradients be used?
    clip        changes the gradients           update  the optimizer that writes the updates
    param_sync  what follows the updates        guard   checks, and may stop the training

A stage is a `ProgramStage`, which writes ops, or a stage on named tensors (`named_stages`), which
one op runs. Either way the ops call the functions that the stages of modules call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from fleetx.comm.gradient_all_reduce import GradientExchange
from fleetx.static.clip import GradientClipBase
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program
from fleetx.static.optimizer.wrapped_optimizer import Pairs, ProgramStage
from fleetx.static.run.scope import Scope
from fleetx.step.named_stages import NamedExchange, NamedParameterSync
from fleetx.step.slots import FixedSlots
from fleetx.step.stages import GradientSync, LocalGradients, Parameters, ParameterSync


@dataclass
class WrittenUpdate:
    """A training program whose updates are written."""

    main: Program
    startup: Program
    loss: Any
    pairs: Pairs
    """Parameters with their gradients, as the updates see them."""
    block: Any
    """The block of the updates."""
    start: int
    end: int
    """The updates, with what the optimizer writes around them, are `block.ops[start:end]`."""

    @property
    def updates(self) -> list[Operator]:
        """The ops that update parameters."""
        ops: list[Operator] = self.block.ops[self.start : self.end]
        wanted = [op for op in ops if op.op_role & OpRole.Optimize]
        return [op for op in wanted if op.input("Param") and op.input("Grad")]


class ProgramParameterSync:
    """The stage after the updates of a program; by default none: parameters stay equal."""

    exchange: GradientExchange | None = None
    """The all-reduce of the sums over workers that it writes."""
    divides_state: ClassVar[bool] = False
    """Workers have the optimizer state of different parameters: one worker's file is incomplete."""
    divides_parameters: ClassVar[bool] = False
    """Workers have different parameters."""
    own: frozenset[str] = frozenset()
    """Variables that only this worker has."""
    counters: Sequence[str] = ()
    """Two variables that are equal in the runs after which parameters are equal on all workers, if
    that is not every run."""
    save_wait = 0.0
    """Seconds that a save waits for all workers to average first."""

    def write(self, written: WrittenUpdate) -> None:
        """Write ops after the updates."""

    def count(self, scope: Scope) -> int:
        """Return the number of updates so far, 0 if they are not counted."""
        return 0

    def behind(self, scope: Scope) -> int:
        """Return the number of updates since parameters were equal on all workers."""
        return 0

    def synchronize(self, scope: Scope) -> None:
        """Make parameters in a scope equal on all workers, which must all call it."""


@runtime_checkable
class WrittenClip(Protocol):
    """A clip that the optimizer of a program writes."""

    def as_ops(self) -> GradientClipBase:
        """Return what writes the ops."""


@runtime_checkable
class ProgramGuard(Protocol):
    """Writes a check of losses and gradients."""

    def write(self, step: ProgramStep, written: WrittenUpdate) -> None:
        """Write ops after everything else."""


_WRITTEN = "a ProgramStage, which writes ops,"
_RUN = "a stage on named tensors (fleetx.step.named_stages), which an op runs,"


@dataclass
class ProgramStep(FixedSlots):
    """The composed step of a program."""

    trains: ClassVar[str] = "program"

    update: Any
    """The optimizer that writes the updates: the user's, or what a technique puts in its place."""
    precision: ProgramStage = field(default_factory=ProgramStage)
    memory: ProgramStage = field(default_factory=ProgramStage)
    grad_sync: GradientSync = field(default_factory=GradientSync)
    """A plain `GradientSync` is the sum over workers after the backward pass, `LocalGradients`
    none; a `NamedExchange` is run by an op before the clip."""
    clip: GradientClipBase | Callable[[Parameters], None] | None = None
    """A function of parameters that an op runs before the update, or one that the optimizer
    writes as ops."""
    param_sync: ProgramParameterSync | ParameterSync = field(default_factory=ProgramParameterSync)
    guard: ProgramGuard | None = None
    starts_equal: bool = True
    """The startup program broadcasts the values of rank 0."""

    def __post_init__(self) -> None:
        if getattr(self.update, "exchanges_gradients", False):
            self.grad_sync = LocalGradients()
        self._fix_slots()

    def check(self, slot: str, stage: Any) -> str | None:
        """Return which stages a slot takes, as a clause, if it does not take this one."""
        plain = type(stage) in (GradientSync, LocalGradients, ParameterSync)
        if isinstance(stage, NamedParameterSync) and stage.trains_alone:
            return "a NamedParameterSync that keeps workers equal (no `trains_alone`)"
        kinds: dict[str, tuple[str, tuple[type, ...]]] = {
            "precision": (_WRITTEN, (ProgramStage,)),
            "memory": (_WRITTEN, (ProgramStage,)),
            "grad_sync": (_RUN, (NamedExchange, ProgramStage)),
            "clip": ("a function of parameters", (GradientClipBase, Callable)),  # type: ignore
            "param_sync": (_RUN, (NamedParameterSync, ProgramParameterSync)),
            "guard": ("a ProgramGuard, which writes ops,", (ProgramGuard,)),
        }
        reason, wanted = kinds.get(slot, ("", (object,)))
        return None if plain or isinstance(stage, wanted) else reason
