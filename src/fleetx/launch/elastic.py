"""An elastic job on one machine: the launcher replaces lost workers while the others continue.

The launcher restarts a dead worker, which then joins, and ends the job only if it cannot continue:
no worker is left, one fails before training has begun, or one is lost after another has finished.
The link between the machines provides the coordinator's state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fleetx.launch import failure
from fleetx.launch.elastic_membership import JobState
from fleetx.launch.forking import WarmParent
from fleetx.launch.group import Group, ProcessSpec, Worker
from fleetx.runtime.elastic_environment import ElasticPlace


@dataclass(frozen=True)
class Elastic:
    """Settings for the processes of a machine, and the state of the job."""

    place: ElasticPlace
    restarts: int
    """How often a worker is restarted."""
    state: Callable[[], JobState]

    def change(self, specs: Sequence[ProcessSpec]) -> list[ProcessSpec]:
        """Return process specifications with the coordinator's address and individual restarts."""
        return [
            replace(
                spec,
                # Torch's warnings about connections of lost workers are long and add no
                # information.
                environment={
                    "TORCH_CPP_LOG_LEVEL": "ERROR",
                    **spec.environment,
                    **self.place.variables(),
                },
                restarts=self.restarts,
            )
            for spec in specs
        ]


class ElasticGroup(Group):
    """The processes of an elastic job on this machine."""

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        host: str,
        elastic: Elastic,
        parent: WarmParent | None = None,
    ) -> None:
        self._elastic = elastic
        self._earlier: list[failure.Failure] = []
        super().__init__(specs, host, parent)

    def _comes_back(self, worker: Worker) -> bool:
        job = self._elastic.state()
        if not worker.failed or job.is_ending or job.problem:
            return False
        # An error of the script before the first step would only be repeated.
        may_help = worker.process.returncode < 0 or job.is_training
        if may_help and worker.restarted >= worker.spec.restarts:
            self._give_up(worker)
        return may_help and worker.comes_back

    def _again(self, worker: Worker) -> Worker:
        self._earlier.append(self._failure_of(worker))
        return super()._again(worker)

    def _give_up(self, worker: Worker) -> None:
        """Continue without a worker that has no restarts left, if others train."""
        job, rank = self._elastic.state(), worker.spec.rank
        here = any(w is not worker and w.process.returncode is None for w in self.workers)
        others = here or any(number != rank for number in job.workers)
        if job.is_training and others:
            self._continue_without(worker)

    def _is_failure(self, worker: Worker) -> bool:
        return worker.failed and worker.spec.log not in self._given_up

    def failure(self) -> failure.Failure | None:
        """Return the first failure, or why the job cannot continue."""
        found, problem = super().failure(), self._elastic.state().problem
        if len(self._given_up) == len(self.workers):
            sentence = "No worker of this machine has restarts left; the others continue."
            return failure.Failure(kind="left", host=self._host, sentence=sentence, code=1)
        if found is None and not problem:
            return None
        if self._earlier and problem:
            earlier = failure.first(self._earlier[-len(self.workers) :])
            return replace(earlier, sentence=f"{earlier.sentence} {problem}")
        return found or failure.Failure(kind="lost", host=self._host, sentence=problem, code=1)
