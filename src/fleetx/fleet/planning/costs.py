"""The costs of a plan on a cluster: memory of a worker, bytes per link, seconds per step.

Bytes are those of `fleet.explain()`: rings, limited by their busiest link. Gradients overlap with
backward, gathered parameters with the computation of neighbouring blocks; broadcasts of owners,
activations of divided layers and copies of a pipeline do not overlap. On CPUs nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleetx.fleet.planning.cluster import Cluster
from fleetx.fleet.planning.memory import Memory, layer_bytes, memory_of
from fleetx.fleet.planning.model_figures import ModelFigures
from fleetx.fleet.planning.plan import Plan
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.step.stages import Stage
from fleetx.step.technique import Job, ring_bytes
from fleetx.techniques.pipeline_stages import first_layers
from fleetx.techniques.sharding_costs import ShardingCosts


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes that workers along some dimensions send to each other in a step."""

    axes: tuple[str, ...]
    sent: float
    """Bytes that one worker sends."""
    during: str = ""
    """`forward` or `backward` if it overlaps with that pass; otherwise it does not overlap."""
    in_turn: int = 0
    """The number of owners, if they send one after another, so that a link carries one direction at
    a time.
    """


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
        self._layers = layer_bytes(plan, figures)

    def costs(self) -> Costs:
        traffic = self._traffic()
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

    # -- bytes ----------------------------------------------------------------------------
    def _traffic(self) -> list[Traffic]:
        found = self._sharded() if self._plan.stage else self._copied()
        return [each for each in [*found, *self._activations_sent()] if each.sent]

    def _copied(self) -> list[Traffic]:
        """Return the messages of copies, whose gradients are averaged."""
        waited_for = self._degrees.pp > 1 or self._degrees.mp > 1
        during = "" if waited_for else "backward"
        return [
            Traffic(axes=("dp",), sent=ring_bytes(self._layers, self._degrees.dp), during=during)
        ]

    def _sharded(self) -> list[Traffic]:
        strategy = DistributedStrategy()
        for name, value in self._plan.settings(self._figures).items():
            setattr(strategy, name, value)
        job = Job(strategy=strategy, workers=self._cluster.workers)
        inside, everywhere = (self._sharding_rows(job, each) for each in (False, True))
        gradients, parameters = inside
        copies = everywhere[0] - gradients
        stage, owners = self._plan.stage, self._degrees.sharding
        if stage == 1:  # one all-reduce over all workers
            during = "" if self._degrees.pp > 1 else "backward"
            found = [Traffic(axes=("dp", "sharding"), sent=everywhere[0], during=during)]
        else:
            # Owners of stage 2 exchange with other copies after backward.
            during = "" if stage == 2 else "backward"
            in_turn = owners if stage == 2 else 0
            found = [
                Traffic(axes=("sharding",), sent=gradients, during="backward", in_turn=in_turn),
                Traffic(axes=("dp",), sent=copies, during=during),
            ]
        if stage < 3:
            return [*found, Traffic(axes=("sharding",), sent=parameters, in_turn=owners)]
        halves = [
            Traffic(axes=("sharding",), sent=parameters / 2, during=during)
            for during in ("forward", "backward")
        ]
        return found + halves

    def _sharding_rows(self, job: Job, averages_copies: bool) -> tuple[float, float]:
        """Return the bytes of gradients and of parameters that a worker sends."""
        sizes = replace(self._figures.sizes, device=self._cluster.device)
        inside = sum(block.elements for block in self._figures.blocks.values())
        account = ShardingCosts(
            job, sizes, self._plan.stage, inside, averages_copies=averages_copies
        )
        sent = {row.stage: row.bytes_sent for row in account.rows("sharding", self._copies)}
        share = self._layers / max(1, sizes.parameter_bytes)
        return sent[Stage.GRAD_SYNC] * share, sent[Stage.PARAM_SYNC] * share

    def _activations_sent(self) -> list[Traffic]:
        """Return the messages of divided layers and of pipeline stages."""
        mp, pp = self._degrees.mp, self._degrees.pp
        found: list[Traffic] = []
        if mp > 1:
            total = 0.0
            for name, module in self._figures.divided.items():
                is_sum = self._figures.styles[name] in ("rowwise", "embedding")
                # Sums of outputs in forward, or of the inputs' gradients in backward.
                total += ring_bytes(module.leaving if is_sum else module.entering, mp)
                if self._figures.styles[name] == "gathered":
                    total += ring_bytes(module.leaving, mp) / 2
            found.append(Traffic(axes=("mp",), sent=total * self._plan.batches / pp))
        if pp > 1:
            begins = first_layers(self._figures.layer_modules, pp, ())
            entering = [layer.entering for layer in self._figures.layers.values()]
            # Activations forward, their gradients backward; the schedule hides all but the first.
            largest = max(entering[begin] for begin in begins[1:]) * self._plan.batches
            found.append(Traffic(axes=("pp",), sent=2 * largest, during="backward"))
        return found
