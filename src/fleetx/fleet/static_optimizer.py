"""The distributed optimizer of the static front end: `minimize` also writes the communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fleetx import comm
from fleetx.fleet.collective_program import (
    insert_all_reduce,
    insert_broadcast,
    use_sync_batch_norm,
)
from fleetx.fleet.explain import Explanation, announce, explain, program_sizes
from fleetx.static.program import Program, default_startup_program
from fleetx.step.compose import compose_program
from fleetx.step.program_step import ProgramStep

if TYPE_CHECKING:
    from fleetx.fleet.session import Fleet


@dataclass
class CollectivePrograms:
    """The programs of a collective training job."""

    main: Any  # with communication
    origin: Program  # as the optimizer left it, without
    startup: Program
    explanation: Explanation


class StaticDistributedOptimizer:
    """An optimizer of programs that trains on all workers."""

    def __init__(self, fleet: Fleet, inner: Any) -> None:
        self._fleet = fleet
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def minimize(
        self,
        loss: Any,
        startup_program: Any = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Append backward, communication and update for `loss`; return (update ops, pairs)."""
        fleet, strategy = self._fleet, self._fleet._strategy
        main = loss.block.program
        startup = default_startup_program() if startup_program is None else startup_program
        job, techniques = fleet._choose(self.inner)
        rings = max(1, strategy.nccl_comm_num)
        step = ProgramStep(self.inner, None)
        if job.workers > 1 and not getattr(self.inner, "exchanges_gradients", False):
            step.synchronise = partial(insert_all_reduce, workers=job.workers, rings=rings)
            if comm.is_connected():
                step.exchange = job.exchange()
        compose_program(step, techniques)
        result = step.optimizer.minimize(
            loss,
            startup_program=startup,
            parameter_list=parameter_list,
            no_grad_set=no_grad_set,
        )
        origin = main.clone()
        if step.synchronise is not None:
            step.synchronise(main, result[1])
        for append in step.after_update:
            append(main, startup, loss)
        if job.workers > 1:
            names = [v.name for v in startup.global_block().vars.values() if v.persistable]
            insert_broadcast(startup, names, rings)
            if strategy.sync_batch_norm:
                use_sync_batch_norm(main)
            main._gradient_exchange = step.exchange
        explanation = explain(job, techniques, program_sizes(main), type(self.inner).__name__)
        announce(explanation)
        fleet._collective = CollectivePrograms(main, origin, startup, explanation)
        return result
