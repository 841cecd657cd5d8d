"""Programs in an elastic job: a run of the training program is the step.

The state is the program's persistable variables in the scope: new workers receive it, and a
discarded run is rolled back. If workers differ after a run (gradient_merge, localsgd), several runs
are one step. A worker's weight in averages is also a variable of the scope, so that the lowered
program stays the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fleetx.fleet.collective.elastic_rules import check
from fleetx.fleet.collective.elastic_state import SharedState, Stateful
from fleetx.fleet.collective.elastic_training import ElasticTraining
from fleetx.fleet.strategy.agreement_card import what_was_asked
from fleetx.static.graph.default_programs import program_guard
from fleetx.static.graph.program import Program
from fleetx.static.io.variables import is_persistable
from fleetx.static.layers.creation import create_global_var
from fleetx.static.ops.stage_ops import EXCHANGE
from fleetx.static.optimizer.gradient_merge_optimizer import COUNT
from fleetx.static.run.scope import Scope, global_scope
from fleetx.step.named_stages import RESIDUAL
from fleetx.step.technique import Job, Technique

if TYPE_CHECKING:
    from fleetx.fleet.collective.program_writing import CollectivePrograms

_WEIGHT = "@ELASTIC_WEIGHT"
SHARE = "@ELASTIC_SHARE"
"""The variable with 1 / the number of workers."""


class ProgramState(SharedState):
    """The persistable variables of a program in a scope, and what the script shares."""

    def __init__(
        self,
        scope: Callable[[], Scope],
        names: Sequence[str],
        own: Collection[str],
        shared: Mapping[str, Stateful],
    ) -> None:
        """Take the names of the variables, and those that belong to one worker (residuals)."""
        super().__init__(shared)
        self._scope, self._names, self._own = scope, names, own

    def _tensors(self) -> dict[str, torch.Tensor]:
        scope = self._scope()
        found = {name: scope.find_var(name) for name in self._names}
        missing = [name for name, var in found.items() if var is None or var.value is None]
        if missing:
            raise RuntimeError(
                f"variable {missing[0]!r} of the training program has no value: run the startup "
                "program before the first step."
            )
        values = {name: var.value for name, var in found.items() if var is not None}
        return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}

    def capture(self) -> dict[str, Any]:
        """Return the variables."""
        return {"scope": {name: t.detach() for name, t in self._tensors().items()}}

    @torch.no_grad()
    def load(self, state: dict[str, Any]) -> None:
        """Set the variables to those of another worker, except for its residuals."""
        for name, tensor in self._tensors().items():
            if name in self._own:
                tensor.detach().zero_()
            else:
                tensor.detach().copy_(state["scope"][name])

    def remember(self, *, everything: bool) -> None:
        """Copy the variables before a run."""
        super().remember(everything=everything)
        self._boundary["scope"] = {n: t.detach().clone() for n, t in self._tensors().items()}

    @torch.no_grad()
    def put_back(self) -> None:
        """Restore the variables from before the run."""
        for name, tensor in self._tensors().items():
            tensor.detach().copy_(self._boundary["scope"][name])
        super().put_back()


class ElasticProgram:
    """Decides whether runs of a training program count."""

    weight = _WEIGHT
    """The name of the variable with this worker's weight."""

    def __init__(
        self,
        training: ElasticTraining,
        program: Program,
        startup: Program,
        job: Job,
        techniques: Sequence[Technique[Any]],
    ) -> None:
        check(job, techniques)
        self._training = training
        self._strategy = job.strategy
        self._program = weakref.ref(program)
        self._scope: Scope | None = None
        self._written: CollectivePrograms | None = None
        with program_guard(program, startup):
            for name in (_WEIGHT, SHARE):
                create_global_var([1], 1.0, "float64", persistable=True, name=name)

    def attach(self, written: CollectivePrograms) -> None:
        """Make the program's runs depend on the vote of all workers."""
        self._written = written
        program = self._program()
        assert program is not None  # the caller holds it
        program.binding.decision = self
        variables = [v for v in program.global_block().vars.values() if is_persistable(v)]
        names = [v.name for v in variables if v.name not in (_WEIGHT, SHARE)]
        card: list[Any] = [[v.name, list(v.shape), str(v.dtype)] for v in variables]
        card.append([op.type for op in program.global_block().ops])
        card.append(what_was_asked("fleet.init", self._strategy))
        self._training.train_program(
            partial(ProgramState, self._the_scope, names, _own(program)), card
        )

    def _the_scope(self) -> Scope:
        """Return the scope of the training: the one that is current when the first step begins."""
        if self._scope is None:
            self._scope = global_scope()
        return self._scope

    def begin(self, program: Program, scope: Scope) -> None:
        """Begin a step, and set this worker's weight in it."""
        self._scope = self._scope or scope
        if scope is not self._scope:
            raise RuntimeError(
                "an elastic job trains a program in one scope, the current one when its first step "
                "begins: pass no other to Executor.run, or enter it by scope_guard before."
            )
        self._training.begin()
        self._training.require_whole_batch()
        assert self._written is not None
        size = self._training.size
        weight = self._training.weight() * (size if self._written.averages else 1)
        for name, value in ((_WEIGHT, weight), (SHARE, 1.0 / size)):
            scope.var(name).value = torch.tensor([value], dtype=torch.float64)

    def run(self, compute: Callable[[], Any], without_result: Callable[[], Any]) -> Any:
        """Run the program, and keep its result only if all workers have finished it."""
        found = self._training.run_program(compute, self._ends_step)
        return without_result() if found is None else found

    def _ends_step(self) -> bool:
        """Return whether all workers have the same state after this run."""
        assert self._written is not None
        scope = self._the_scope()
        merged = scope.find_var(COUNT)
        if merged is not None and merged.value is not None and int(merged.value.item()):
            return False
        return self._written.param_sync.behind(scope) == 0


def _own(program: Program) -> set[str]:
    """Return the variables with residuals."""
    found: set[str] = set()
    for op in (op for block in program.blocks for op in block.ops):
        if op.type == "dgc":  # velocities of compressed gradients are a worker's own too
            found |= {*op.input("U"), *op.input("V")}
        elif op.type == EXCHANGE:
            found |= {name for name in op.input("State") if name.endswith(RESIDUAL)}
    return found
