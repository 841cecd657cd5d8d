"""Which techniques a session trains with: the part of it that composes and explains the step."""

from __future__ import annotations

import copy
import logging
from typing import Any

from fleetx.comm.gradient_all_reduce import AllReduceSettings
from fleetx.fleet.collective.auto_model import ModelSearch
from fleetx.fleet.collective.explain import Explanation
from fleetx.fleet.collective.module_training import EagerTraining
from fleetx.fleet.paddle_rules import selection as paddle_selection
from fleetx.fleet.roles.identity import Identity
from fleetx.fleet.roles.role_maker import RoleMakerBase
from fleetx.fleet.servers.job import ServerJob, TrainingServers
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.step.compose import choose
from fleetx.step.technique import Job, Technique

logger = logging.getLogger("fleetx.fleet")


class Composition(Identity):
    """Chooses techniques by the strategy and tells what came of it."""

    _strategy: Any
    _collective: Any
    _servers: ServerJob | None
    _eager: EagerTraining
    _applied: list[Technique]
    _keeps_graph: bool

    def _job(self, strategy: Any = None) -> Job:
        """Return what techniques may know about this job."""
        strategy = self._strategy if strategy is None else strategy
        servers = None if self._servers is None else TrainingServers(self._servers, strategy)
        strategy = _switches(strategy)
        return Job(
            strategy=strategy,
            rank=self.worker_index(),
            servers=servers,
            workers=self.worker_num(),
            all_reduce=all_reduce_settings(strategy, self._role),
            bucket_mb=strategy.fuse_grad_size_in_MB if strategy.fuse_all_reduce_ops else 1e-6,
            last_bucket_mb=strategy.last_comm_group_size_MB,
            # Paddle's default would make many small messages: it counts only where it was set.
            bucket_count=strategy.fuse_grad_size_in_num
            if strategy.was_set("fuse_grad_size_in_num")
            else 0,
        )

    def _new_eager(self) -> EagerTraining:
        search = ModelSearch(self._searches, self._job, self._adopt, self.node_num)
        return EagerTraining(self._choose, search)

    def _searches(self) -> bool:
        """Tell whether the strategy is still to be found by measuring."""
        if self._servers is not None:  # what is tried trains by all-reduce
            return False
        strategy = self._strategy
        return bool(strategy.auto) and not strategy.localsgd and strategy.auto_applies()

    def _adopt(self, strategy: Any) -> None:
        """Follow a strategy from now on."""
        self._strategy = strategy

    def _choose(self, optimizer: Any = None) -> tuple[Job, list[Technique]]:
        """Return the job and the techniques that its strategy switches on.

        The strategies of the package `paddle` drop what Paddle would drop, with a warning.
        """
        final, self._keeps_graph = self._strategy, True
        if _switches(final).drops_conflicts and optimizer is not None:
            names, self._keeps_graph = paddle_selection.select(
                final, optimizer, self.worker_num(), logger.warning
            )
            final = copy.deepcopy(final)
            for name in paddle_selection.OPTIMIZERS:
                if getattr(final, name) and name not in names:
                    setattr(final, name, False)
        job = self._job(final)
        self._applied = choose(job)
        return job, self._applied

    # -- what was composed ------------------------------------------------------------
    def explain(self) -> Explanation:
        """Print the composed step as a table, and return it.

        Shows each stage, its technique with settings, the bytes this worker sends per step and the
        memory that is added or saved. Model and optimizer must be known.
        """
        found = self._explanation()
        print(found)
        return found

    def _explanation(self) -> Explanation:
        if self._collective is not None:
            return self._collective.explanation  # type: ignore[no-any-return]
        return self._eager.explanation()

    def _final_strategy(self) -> Any:
        """Return the strategy that is followed: a copy with switches off that were dropped."""
        self._role  # noqa: B018 - raises if init was not called
        has_switches = _switches(self._strategy) is self._strategy
        applied = [technique.job.strategy for technique in self._applied if has_switches]
        return copy.deepcopy(applied[0] if applied else self._strategy)

    def _get_applied_meta_list(self) -> list[str]:
        """Return Paddle's names of the techniques that are applied, outermost first."""
        names = [technique.name for technique in self._applied]
        chain = paddle_selection.longest_chain(names)
        rest = [name for name in names if name not in chain]
        known = paddle_selection.OPTIMIZERS
        return [known[name] for name in [*chain, *rest] if name in known]

    def _get_applied_graph_list(self) -> list[str]:
        """Return Paddle's name for a graph that is run as a whole, if `minimize` made one."""
        has_program = self._collective is not None and self._servers is None
        return [paddle_selection.GRAPH] if has_program and self._keeps_graph else []


def _switches(strategy: Any) -> DistributedStrategy:
    """Return the switches of a strategy; one that only says how servers train has none on."""
    return strategy if hasattr(strategy, "drops_conflicts") else DistributedStrategy()


def all_reduce_settings(strategy: Any, role: RoleMakerBase) -> AllReduceSettings:
    """Return how gradients are summed, as a strategy says.

    On one machine a hierarchy or several communicators have nothing to gain in Paddle and are left
    out there; here the strategy is followed as soon as the workers divide into groups.
    """
    group = 0
    if strategy.use_hierarchical_allreduce:
        group = strategy.hierarchical_allreduce_inter_nranks
        if group < 2:
            group = max(2, role.worker_num() // max(1, role.node_num()))
    return AllReduceSettings(
        group_size=group,
        communicators=max(1, strategy.nccl_comm_num),
    )
