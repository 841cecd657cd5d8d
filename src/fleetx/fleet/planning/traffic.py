"""The messages of a plan: which workers send how many bytes in a step, and what they overlap with.

Bytes are those of `fleet.explain()`: rings. They follow from the model and the degrees; how long
they take is up to the cluster (`costs.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleetx.fleet.planning.memory import layer_bytes
from fleetx.fleet.planning.model_figures import ModelFigures
from fleetx.fleet.planning.plan import Plan
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.step.stages import Stage
from fleetx.step.technique import Job, ring_bytes
from fleetx.techniques.pipeline_stages import first_layers
from fleetx.techniques.sharding_costs import ShardingCosts
from fleetx.techniques.tensor_parallel_traffic import rounds_of


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


def traffic_of(plan: Plan, figures: ModelFigures, device: str, copies: int) -> list[Traffic]:
    """Return the messages of a plan on a kind of device, for an optimizer with `copies` state
    tensors per parameter."""
    return [each for each in _Account(plan, figures, device, copies).traffic() if each.sent]


class _Account:
    def __init__(self, plan: Plan, figures: ModelFigures, device: str, copies: int) -> None:
        self._plan, self._figures, self._device, self._copies = plan, figures, device, copies
        self._degrees = plan.degrees
        self._layers = layer_bytes(plan, figures)

    def traffic(self) -> list[Traffic]:
        found = self._sharded() if self._plan.stage else self._copied()
        return [*found, *activations_sent(self._plan, self._figures)]

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
        job = Job(strategy=strategy, workers=self._degrees.workers)
        sent = self._sharding_bytes(job)
        parameters = sent[Stage.PARAM_SYNC, ("sharding",)]
        stage, owners = self._plan.stage, self._degrees.sharding
        if stage == 1:  # one all-reduce over all workers
            during, axes = "" if self._degrees.pp > 1 else "backward", ("dp", "sharding")
            found = [Traffic(axes=axes, sent=sent[Stage.GRAD_SYNC, axes], during=during)]
        else:
            # Owners of stage 2 exchange with other copies after backward, and `fully_shard` waits
            # for every message where there are no streams.
            waits = stage == 2 or self._device == "cpu"
            during = "" if waits else "backward"
            in_turn = owners if stage == 2 else 0
            found = [
                Traffic(
                    axes=("sharding",),
                    sent=sent[Stage.GRAD_SYNC, ("sharding",)],
                    during="backward" if stage == 2 else during,
                    in_turn=in_turn,
                ),
                Traffic(
                    axes=("dp",), sent=sent.get((Stage.GRAD_SYNC, ("dp",)), 0.0), during=during
                ),
            ]
        if stage < 3:
            return [*found, Traffic(axes=("sharding",), sent=parameters, in_turn=owners)]
        passes = ("", "") if self._device == "cpu" else ("forward", "backward")
        halves = [
            Traffic(axes=("sharding",), sent=parameters / 2, during=during) for during in passes
        ]
        return found + halves

    def _sharding_bytes(self, job: Job) -> dict[tuple[Stage, tuple[str, ...]], float]:
        """Return the bytes of gradients and of parameters that a worker sends, by dimensions."""
        sizes = replace(self._figures.sizes, device=self._device)
        inside = sum(block.elements for block in self._figures.blocks.values())
        account = ShardingCosts(job, sizes, self._plan.stage, inside, averages_copies=True)
        share = self._layers / max(1, sizes.parameter_bytes)
        rows = account.rows("sharding", self._copies)
        return {(row.stage, row.axes): row.bytes_sent * share for row in rows}


def activations_sent(plan: Plan, figures: ModelFigures) -> list[Traffic]:
    """Return the messages of divided layers and of pipeline stages."""
    mp, pp = plan.degrees.mp, plan.degrees.pp
    found: list[Traffic] = []
    if mp > 1:
        total = 0.0
        for name, module in figures.divided.items():
            of_inputs, of_outputs = rounds_of(figures.styles[name])
            passed = of_inputs.total * module.entering + of_outputs.total * module.leaving
            total += ring_bytes(passed, mp) / 2
        found.append(Traffic(axes=("mp",), sent=total * plan.batches / pp))
    if pp > 1:
        begins = first_layers(figures.layer_modules, pp, ())
        entering = [layer.entering for layer in figures.layers.values()]
        largest = max(entering[begin] for begin in begins[1:]) * plan.batches
        # Activations forward and their gradients backward, between neighbours; an average worker
        # sends less, because the first and the last have one neighbour. They are waited for: by
        # 1F1B a stage goes on with a micro-batch when an earlier one has been to the last stage and
        # back, and there are only as many under way as stages.
        found.append(Traffic(axes=("pp",), sent=2 * (pp - 1) / pp * largest))
    return found
