"""The distributed optimizer of the static front end: `minimize` also writes the communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetx import comm
from fleetx.comm.gradient_all_reduce import GradientAllReduce, GradientExchange
from fleetx.fleet.collective_program import (
    insert_all_reduce,
    insert_broadcast,
    insert_parameter_average,
    use_sync_batch_norm,
)
from fleetx.static.program import Program, default_startup_program

if TYPE_CHECKING:
    from fleetx.fleet.session import Fleet


@dataclass
class CollectivePrograms:
    """The programs of a collective training job."""

    main: Any  # with communication
    origin: Program  # as the optimizer left it, without
    startup: Program


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
        from fleetx.fleet.session import all_reduce_settings

        fleet, strategy = self._fleet, self._fleet._strategy
        main = loss.block.program
        startup = default_startup_program() if startup_program is None else startup_program
        result = self.inner.minimize(
            loss,
            startup_program=startup,
            parameter_list=parameter_list,
            no_grad_set=no_grad_set,
        )
        origin = main.clone()
        workers = fleet.worker_num()
        if workers > 1:
            rings = max(1, strategy.nccl_comm_num)
            if strategy.localsgd:
                insert_parameter_average(main, workers, rings)
            else:
                insert_all_reduce(main, result[1], workers, rings)
            names = [v.name for v in startup.global_block().vars.values() if v.persistable]
            insert_broadcast(startup, names, rings)
            if strategy.sync_batch_norm:
                use_sync_batch_norm(main)
            if comm.is_connected() and not strategy.localsgd:
                main._gradient_exchange = GradientExchange(
                    GradientAllReduce(all_reduce_settings(strategy, fleet._role)),
                    limit_mb=float(getattr(strategy, "fuse_grad_size_in_MB", 32))
                    if getattr(strategy, "fuse_all_reduce_ops", True) is not False
                    else 1e-6,
                    last_mb=float(getattr(strategy, "last_comm_group_size_MB", 1)),
                )
        fleet._collective = CollectivePrograms(main, origin, startup)
        return result
