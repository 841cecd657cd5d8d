"""The costs of a plan on a cluster: memory of a worker, bytes per link, seconds per step.

Rings are limited by their busiest link. Gradients overlap with backward, and on GPUs gathered
parameters with the computation of neighbouring blocks; broadcasts of owners, activations and copies
of a pipeline do not overlap. On CPUs the cores that compute also copy messages, so that only the
time in which they would wait for a link is hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetx.fleet.planning.cluster import Cluster
from fleetx.fleet.planning.memory import Memory, layer_bytes, memory_of, stage_shares
from fleetx.fleet.planning.model_figures import ModelFigures
from fleetx.fleet.planning.plan import Plan, idle_factor
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
        figures = self._figures
        share = figures.repeated + (1 - figures.repeated) / self._degrees.mp
        share *= max(stage_shares(self._plan, figures)) * idle_factor(self._plan)
        operations = figures.operations * self._plan.batches * share
        forward = operations / 3 / self._cluster.flops
        backward = forward * (3 if self._plan.recompute else 2)
        return forward, backward + self._accumulation()

    def _accumulation(self) -> float:
        """Return the seconds in which gradients of micro-batches are added up; on GPUs that is
        negligible."""
        if self._cluster.device != "cpu":
            return 0.0
        gradients = layer_bytes(self._plan, self._figures)
        return (self._plan.micro_batches - 1) * gradients / self._cluster.adding

    def _seconds(self, traffic: Sequence[Traffic], compute: tuple[float, float]) -> float:
        forward, backward = compute
        busy = {"": 0.0, "forward": forward, "backward": backward}
        waits = dict.fromkeys(busy, 0.0)
        for each in traffic:
            waits[each.during] += self._seconds_of(each)
            if self._cluster.device == "cpu" and each.during:
                # The cores copy messages to and from sockets as fast as to other processes.
                busy[each.during] += each.sent / self._cluster.inside
        return sum(max(busy[during], waits[during]) for during in busy)

    def _seconds_of(self, traffic: Traffic) -> float:
        load, owners = self._load(traffic), traffic.in_turn
        rate = self._cluster.payload_rate if load else self._cluster.inside
        return (load or traffic.sent) / rate * (owners / (owners - 1) if owners > 1 else 1)

    def _load(self, traffic: Traffic) -> float:
        """Return the bytes on the busiest link between machines."""
        return traffic.sent * self._cluster.crossings(self._degrees.groups(traffic.axes))
