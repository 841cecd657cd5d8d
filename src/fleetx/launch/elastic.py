"""An elastic job, as its launcher runs it: lost workers are replaced while the others train on.

The launcher keeps the coordinator, starts a worker that died again as a newcomer, and ends the
job only if it cannot go on: nobody is left, a worker fails before training has begun, or one is
lost after another has finished.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from fleetx.launch import failure
from fleetx.launch.arguments import Options
from fleetx.launch.console import log
from fleetx.launch.elastic_coordinator import Coordinator
from fleetx.launch.group import Group, ProcessSpec, Worker
from fleetx.launch.layout import Cluster
from fleetx.runtime.elastic_environment import ElasticPlace


class Elastic:
    """The coordinator of a job, and what its workers have to know."""

    def __init__(self, place: ElasticPlace, expected: int, restarts: int) -> None:
        self._place = place
        self._restarts = restarts
        self._coordinator = Coordinator(place.coordinator, place.secret, expected, 1, place.timeout)

    @property
    def is_training(self) -> bool:
        """Whether workers train and nobody has finished."""
        return self._coordinator.membership.is_training

    @property
    def is_ending(self) -> bool:
        """Whether a worker has finished."""
        return self._coordinator.membership.is_ending

    @property
    def problem(self) -> str:
        """Why the job cannot go on; empty if it can."""
        return self._coordinator.membership.problem

    def change(self, specs: Sequence[ProcessSpec]) -> list[ProcessSpec]:
        """Return processes that find the coordinator and may be started again one by one."""
        return [
            replace(
                spec,
                # Torch's warnings about connections of lost workers are long, and no news.
                environment={
                    "TORCH_CPP_LOG_LEVEL": "ERROR",
                    **spec.environment,
                    **self._place.variables(),
                },
                restarts=self._restarts,
            )
            for spec in specs
        ]

    def close(self) -> None:
        """End the coordinator."""
        self._coordinator.close()


def open_elastic(options: Options, cluster: Cluster) -> Elastic | None:
    """Return the coordinator of an elastic job; None for any other job."""
    if not options.elastic:
        return None
    place = ElasticPlace(cluster.master, secrets.token_bytes(32), options.elastic_timeout)
    return Elastic(place, len(cluster.endpoints), options.max_restart)


class ElasticGroup(Group):
    """The processes of an elastic job on this machine."""

    def __init__(self, specs: Sequence[ProcessSpec], host: str, elastic: Elastic) -> None:
        self._elastic = elastic
        self._given_up: set[int] = set()
        self._earlier: list[failure.Failure] = []
        super().__init__(specs, host)

    def _comes_back(self, worker: Worker) -> bool:
        if not worker.failed or self._elastic.is_ending or self._elastic.problem:
            return False
        # An error of the script before the first step would only be repeated.
        may_help = worker.process.returncode < 0 or self._elastic.is_training
        if may_help and worker.restarted >= worker.spec.restarts:
            self._give_up(worker)
        return may_help and worker.comes_back

    def _again(self, worker: Worker) -> Worker:
        self._earlier.append(self._failure_of(worker))
        return super()._again(worker)

    def _give_up(self, worker: Worker) -> None:
        """Go on without a worker that has no restarts left, if others train."""
        others = [w for w in self.workers if w is not worker and w.process.returncode is None]
        if self._elastic.is_training and others and worker.spec.rank not in self._given_up:
            self._given_up.add(worker.spec.rank)
            log.warning(
                "%s has no restarts left (--max_restart %d): training goes on without it.",
                worker.spec.name.capitalize(),
                worker.spec.restarts,
            )

    def _is_failure(self, worker: Worker) -> bool:
        return worker.failed and worker.spec.rank not in self._given_up

    @property
    def completed(self) -> bool:
        """Whether all processes that were not given up have succeeded."""
        codes = [w.process.returncode for w in self.workers if w.spec.rank not in self._given_up]
        return all(code == 0 for code in codes)

    def failure(self) -> failure.Failure | None:
        """Return the first failure, or why the job cannot go on."""
        found = super().failure()
        if found is None and not self._elastic.problem:
            return None
        if self._earlier and self._elastic.problem:
            earlier = failure.first(self._earlier[-len(self.workers) :])
            return replace(earlier, sentence=f"{earlier.sentence} {self._elastic.problem}")
        return found or failure.Failure(
            kind="lost", host=self._host, sentence=self._elastic.problem, code=1
        )
