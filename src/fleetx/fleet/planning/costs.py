"""The costs of a plan on a cluster: memory of a worker, bytes per link, seconds per step.

Bytes are those of `fleet.explain()`: rings, limited by their busiest link. Gradients overlap with
backward, gathered parameters with the computation of neighbouring blocks; broadcasts of owners,
activations of divided layers and copies of a pipeline do not overlap. On CPUs nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetx.fleet.planning.cluster import Cluster
from fleetx.fleet.planning.memory import Memory, memory_of
from fleetx.fleet.planning.model_figures import ModelFigures
from fleetx.fleet.planning.plan import Plan
from fleetx.fleet.planning.traffic import Traffic, traffic_of


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The costs of a plan."""

    held: Memory
    between: float
    """Bytes per step over the busiest link between machines, in one direction."""
    inside: float
    """Bytes per step that a worker sends to others on its machine."""
    compute: float
    """Seconds of forward and backward."""
    seconds: float
    """Seconds of a step."""
    samples_per_second: float

    @property
    def memory(self) -> float:
        """Bytes of a worker at its peak."""
        return self.held.total


def costs_of(plan: Plan, figures: ModelFigures, cluster: Cluster, copies: int) -> Costs:
    """Return the costs of a plan, for an optimizer with `copies` state tensors per parameter."""
    return _Account(plan, figures, cluster, copies).costs()


class _Account:
    def __init__(self, plan: Plan, figures: ModelFigures, cluster: Cluster, copies: int) -> None:
        self._plan, self._figures, self._cluster, self._copies = plan, figures, cluster, copies
        self._degrees = plan.degrees

    def costs(self) -> Costs:
        traffic = traffic_of(self._plan, self._figures, self._cluster.device, self._copies)
        compute = self._compute()
        seconds = self._seconds(traffic, compute)
        data_workers = self._degrees.dp * self._degrees.sharding * self._plan.batches
        return Costs(
            held=memory_of(self._plan, self._figures, self._copies),
            between=sum(self._load(each) for each in traffic),
            inside=sum(each.sent for each in traffic if not self._load(each)),
            compute=sum(compute),
            seconds=seconds,
            samples_per_second=self._figures.samples * data_workers / seconds,
        )

    # -- time -----------------------------------------------------------------------------
    def _compute(self) -> tuple[float, float]:
        """Return the seconds of forward and backward on one worker."""
        parts = self._degrees.mp * self._degrees.pp
        operations = self._figures.operations * self._plan.batches
        forward = operations / 3 / parts / self._cluster.flops
        backward = forward * (3 if self._plan.recompute else 2)
        if self._degrees.pp > 1:  # a stage waits until the first micro-batch reaches it
            micro = self._plan.micro_batches
            idle = (micro + self._degrees.pp - 1) / micro
            return forward * idle, backward * idle
        return forward, backward

    def _seconds(self, traffic: Sequence[Traffic], compute: tuple[float, float]) -> float:
        waits = {"": 0.0, "forward": 0.0, "backward": 0.0}
        for each in traffic:
            waits[each.during] += self._seconds_of(each)
        forward, backward = compute
        if self._cluster.device == "cpu":  # the cores that compute are those that send
            return forward + backward + sum(waits.values())
        return max(forward, waits["forward"]) + max(backward, waits["backward"]) + waits[""]

    def _seconds_of(self, traffic: Traffic) -> float:
        load, owners = self._load(traffic), traffic.in_turn
        rate = self._cluster.bandwidth if load else self._cluster.inside
        return (load or traffic.sent) / rate * (owners / (owners - 1) if owners > 1 else 1)

    def _load(self, traffic: Traffic) -> float:
        """Return the bytes on the busiest link between machines."""
        return traffic.sent * self._cluster.crossings(self._degrees.groups(traffic.axes))
