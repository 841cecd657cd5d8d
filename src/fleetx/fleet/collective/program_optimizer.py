"""The distributed optimizer of the static front end: `minimize` also writes the communication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fleetx.fleet.collective.auto_program import ProgramSearch
from fleetx.fleet.collective.elastic_program import ElasticProgram
from fleetx.fleet.collective.explain import announce
from fleetx.fleet.collective.observing import observe_program
from fleetx.fleet.collective.program_writing import write_step
from fleetx.static.graph.default_programs import default_startup_program
from fleetx.static.optimizer.wrapped_optimizer import WrappedOptimizer

if TYPE_CHECKING:
    from fleetx.fleet.session import Fleet


class StaticDistributedOptimizer(WrappedOptimizer):
    """An optimizer of programs that trains on all workers."""

    def __init__(self, fleet: Fleet, inner: Any) -> None:
        super().__init__(inner)
        self._fleet = fleet

    def minimize(
        self,
        loss: Any,
        startup_program: Any = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Append backward, communication and update for `loss`; return (update ops, pairs)."""
        fleet = self._fleet
        startup = default_startup_program() if startup_program is None else startup_program
        more: dict[str, Any] = {"parameter_list": parameter_list, "no_grad_set": no_grad_set}
        if fleet._servers is not None:
            program = loss.block.program
            fleet._adopt(fleet._policy.with_server_mode(fleet._strategy, self.inner, program))
        search = None
        if fleet._searches():
            search = ProgramSearch(fleet, self.inner, loss, startup, more)
        job, techniques = fleet._choose(self.inner, loss.block.program)
        elastic = None
        if fleet._elastic is not None:
            elastic = ElasticProgram(fleet._elastic, loss.block.program, startup, job, techniques)
            more["weight"] = elastic.weight
        result, fleet._collective = write_step(self.inner, loss, startup, job, techniques, **more)
        if elastic is not None:
            elastic.attach(fleet._collective)
        if fleet.is_server():
            return result
        observe_program(loss.block.program, loss.name, fleet._collective.explanation)
        if search is None:
            announce(fleet._collective.explanation, job.rank)
        else:
            loss.block.program.binding.first_run = search.decide
        return result
