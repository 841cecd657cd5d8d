"""The part of a session that composes the techniques of a strategy and explains the step."""

from __future__ import annotations

import copy
from typing import Any

from fleetx.comm.gradient_all_reduce import AllReduceSettings
from fleetx.fleet.collective.auto_model import ModelSearch
from fleetx.fleet.collective.elastic_program import SHARE
from fleetx.fleet.collective.elastic_training import ElasticTraining
from fleetx.fleet.collective.explain import Explanation
from fleetx.fleet.collective.hybrid_groups import HybridGroups
from fleetx.fleet.collective.module_training import EagerTraining
from fleetx.fleet.collective.pipeline_degrees import with_stages
from fleetx.fleet.policy import FLEETX, Policy
from fleetx.fleet.roles.identity import Identity
from fleetx.fleet.roles.role_maker import RoleMakerBase
from fleetx.fleet.servers.job import ServerJob, TrainingServers
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.step.compose import choose
from fleetx.step.degrees import joins_batches
from fleetx.step.technique import Job, Technique


class Composition(Identity):
    """Selects the techniques of the strategy and reports the composed step."""

    _strategy: Any
    _collective: Any
    _servers: ServerJob | None
    _eager: EagerTraining
    _elastic: ElasticTraining | None
    _applied: list[Technique]

    @property
    def _policy(self) -> Policy:
        """The rules of the current strategy."""
        return getattr(self._strategy, "policy", FLEETX)

    def _job(self, strategy: Any = None) -> Job:
        """Return the description of this job that techniques receive."""
        strategy = self._strategy if strategy is None else strategy
        servers = None if self._servers is None else TrainingServers(self._servers, strategy)
        strategy = _switches(strategy)
        return Job(
            strategy=strategy,
            rank=self.worker_index(),
            machines=max(1, self.node_num()),
            servers=servers,
            share="" if self._elastic is None else SHARE,
            # More workers may join an elastic job, however few it starts with.
            workers=self.worker_num() if self._elastic is None else max(2, self.worker_num()),
            all_reduce=all_reduce_settings(strategy, self._role),
            bucket_mb=strategy.fuse_grad_size_in_MB if strategy.fuse_all_reduce_ops else 1e-6,
            last_bucket_mb=strategy.last_comm_group_size_MB,
            unsupported=self._policy.unsupported,
            # Paddle's default would make many small messages: it applies only if it was set
            # explicitly.
            bucket_count=strategy.fuse_grad_size_in_num
            if strategy.was_set("fuse_grad_size_in_num")
            else 0,
        )

    def _new_eager(self) -> EagerTraining:
        search = ModelSearch(self._searches, self._job, self._adopt)
        return EagerTraining(self._choose, search)

    def _searches(self) -> bool:
        """Return whether `auto` has yet to choose the strategy by measuring."""
        strategy = _switches(self._strategy)
        return (
            bool(strategy.auto)
            and not strategy.localsgd
            and self._policy.measures(strategy, has_servers=self._servers is not None)
        )

    def _adopt(self, strategy: Any) -> None:
        """Follow a strategy from now on."""
        self._strategy = strategy

    def _choose(self, optimizer: Any = None, program: Any = None) -> tuple[Job, list[Technique]]:
        """Return the job and the techniques that its strategy switches on."""
        final = self._strategy
        if optimizer is not None:
            final = self._policy.select(final, optimizer, self.worker_num())
        if program is not None and getattr(final, "pipeline", False):
            final = with_stages(final, program, self.worker_num())
            self._adopt(with_stages(self._strategy, program, self.worker_num()))
        job, self._applied = choose(self._job(final))
        return job, self._applied

    # -- the position of this worker --------------------------------------------------
    def get_hybrid_communicate_group(self) -> HybridGroups:
        """Return this worker's place in the degrees of the strategy, under Paddle's names."""
        job = self._job()
        return HybridGroups(job.layout, joins_batches=joins_batches(job.strategy))

    def data_index(self) -> int:
        """Return which part of the data this worker trains on: `worker_index()`, unless workers
        compute one copy of the model together: these get the same part, unless
        `hybrid_configs["joined_batches"]` is True."""
        return self.get_hybrid_communicate_group().data_index

    def data_num(self) -> int:
        """Return into how many parts the data is divided."""
        return self.get_hybrid_communicate_group().data_num

    # -- what was composed ------------------------------------------------------------
    def explain(self) -> Explanation:
        """Print the composed step as a table, and return it.

        Shows each stage, its technique with settings, the bytes this worker sends per step and the
        memory that is added or saved; then what it sends by dimension, and what it keeps. Model and
        optimizer must be known. Activations are counted in the next training step, unless one has
        been counted.
        """
        found = self._explanation()
        print(found)
        return found

    def _explanation(self) -> Explanation:
        if self._collective is not None:
            return self._collective.explanation  # type: ignore[no-any-return]
        return self._eager.explanation()

    def _final_strategy(self) -> Any:
        """Return the effective strategy: a copy without the switches that were dropped."""
        self._role  # noqa: B018 - raises if init was not called
        has_switches = _switches(self._strategy) is self._strategy
        applied = [technique.job.strategy for technique in self._applied if has_switches]
        return copy.deepcopy(applied[0] if applied else self._strategy)

    def _get_applied_meta_list(self) -> list[str]:
        """Return the names of the techniques that are applied, as the policy calls them."""
        return self._policy.names([technique.name for technique in self._applied])

    def _get_applied_graph_list(self) -> list[str]:
        """Return the names of passes that are applied to the whole program of `minimize`."""
        if self._collective is None or self._servers is not None:
            return []
        return self._policy.graph_names([technique.name for technique in self._applied])


def _switches(strategy: Any) -> DistributedStrategy:
    """Return the switches of a strategy; one that only sets the mode of servers has none on."""
    return strategy if hasattr(strategy, "policy") else DistributedStrategy()


def all_reduce_settings(strategy: Any, role: RoleMakerBase) -> AllReduceSettings:
    """Return how a strategy sums gradients.

    Paddle ignores a hierarchy or several communicators on one machine, where they gain nothing;
    FleetX follows the strategy whenever the workers divide into groups.
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
