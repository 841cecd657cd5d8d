"""The ways to divide a model that `auto` tries under `worker_memory_mb`: those of `fleetx plan`.

The model is examined without values, so that what each way holds is known before anything is
allocated. Workers of a copy bring different samples (`joined_batches`), because the script has
chosen its samples by the time that the first batch decides on the degrees.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from fleetx.fleet.collective.auto_batch import Batch
from fleetx.fleet.planning.memory import Memory, memory_of
from fleetx.fleet.planning.model_figures import ModelFigures, examine, outline
from fleetx.fleet.planning.plan import Plan, plans
from fleetx.fleet.planning.traffic import activations_sent
from fleetx.step.degrees import joins_batches, micro_batches
from fleetx.step.technique import Job
from fleetx.step.text_table import size
from fleetx.techniques.auto_candidates import Candidate, Way
from fleetx.techniques.auto_trials import Trial
from fleetx.techniques.joined_batches import checksum_of_shapes
from fleetx.techniques.pipeline_stages import find_layers
from fleetx.techniques.random_state import random_state_kept
from fleetx.techniques.sharding_state import state_copies
from fleetx.techniques.tensor_parallel_plan import find_plan
from fleetx.techniques.tensors_inside import map_tensors

_WHOLE_BATCHES = (
    "a pipeline runs forward and backward of a batch itself: call model.train_batch((x, y), "
    "optimizer) in the script to have it tried."
)
_UNEVEN = "workers got batches of different shapes, which they cannot train on together."


@dataclass
class Layouts:
    """Ways to divide a model, and what workers hold with each of them."""

    figures: ModelFigures
    ways: list[Way] = field(default_factory=list)
    """What candidates may switch on."""
    recompute: list[Way] = field(default_factory=list)
    """Recomputation of the model's blocks, if the strategy names none."""
    left_out: list[Trial] = field(default_factory=list)
    """What is not tried, with the reason."""

    @property
    def choices(self) -> list[list[Way]]:
        """What candidates choose from."""
        return [ways for ways in (self.ways, self.recompute) if ways]

    def memory(self, job: Job, optimizer: Optimizer) -> Memory:
        """Return what a worker of a job would hold."""
        return memory_of(self._plan(job), self.figures, state_copies(optimizer))

    def activations_sent(self, job: Job) -> float:
        """Return the bytes of activations that a worker sends in a step."""
        return sum(each.sent for each in activations_sent(self._plan(job), self.figures))

    def _plan(self, job: Job) -> Plan:
        """Return the plan that a strategy follows."""
        strategy, degrees = job.strategy, job.layout.degrees
        return Plan(
            degrees=degrees,
            stage=strategy.sharding_configs["stage"] if degrees.sharding > 1 else 0,
            recompute=strategy.recompute,
            micro_batches=micro_batches(strategy, degrees.pp),
            joins=joins_batches(strategy),
        )


def find_layouts(model: nn.Module, batch: Batch, job: Job) -> Layouts:
    """Return the ways to divide a model between the workers of a job; all of them must call it."""
    strategy = job.strategy
    styles = strategy.tensor_parallel_configs["plan"]
    given = batch.args, batch.kwargs
    empty = _without_values(model), map_tensors(given, lambda t: t.to("meta"), every=True)
    reason = ""
    try:
        with random_state_kept():
            found = Layouts(examine(empty[0], *empty[1], plan=styles))
    except Exception as error:  # the model's own, of any kind: it needs values
        reason = f"its memory is unknown, because the model cannot be run without values ({error})."
        found = Layouts(outline(*empty, styles))
    if len(set(job.gather(checksum_of_shapes((given, batch.targets))))) > 1:
        reason = _UNEVEN
    obstacles = {
        "tensor_parallel": reason or _why_not(lambda: find_plan(model, styles)),
        "pipeline": reason
        or _why_not(lambda: find_layers(model))
        or (_WHOLE_BATCHES if batch.loss_fn is None else ""),
    }
    obstacles = {name: why for name, why in obstacles.items() if why and job.workers > 1}
    found.left_out = [_left_out(name, f"left out: {why}") for name, why in obstacles.items()]
    _add_ways(found, job, list(obstacles))
    classes = found.figures.block_classes
    if classes and not strategy.recompute and not strategy.recompute_configs["checkpoints"]:
        checkpoints = {"checkpoints": list(classes)}
        found.recompute = [("recompute", {"recompute": True, "recompute_configs": checkpoints})]
    return found


def _add_ways(found: Layouts, job: Job, left_out: Sequence[str]) -> None:
    for plan in plans(found.figures, job.workers, job.per_machine, joins=True):
        settings = plan.settings(found.figures)
        if not plan.words or plan.recompute or any(name in settings for name in left_out):
            continue
        if "accumulate_steps" in job.strategy.pipeline_configs.given:
            settings.pop("pipeline_configs", None)
        found.ways.append((_name(plan, job.workers), settings))


def drop_too_large(
    found: Layouts, limit: float, job: Callable[[Any], Job], optimizer: Optimizer
) -> None:
    """Leave out ways by which a worker holds more than `limit` even without activations; `job`
    returns the job with some settings changed."""
    kept: list[Way] = []
    for name, settings in found.ways:
        memory = found.memory(job(settings), optimizer)
        least = memory.total - memory.activations
        if least > limit:
            note = f"a worker would hold {size(least)} and activations, more than worker_memory_mb"
            found.left_out.append(_left_out(name, note, least))
        else:
            kept.append((name, settings))
    found.ways = kept


def _left_out(name: str, note: str, held: float | None = None) -> Trial:
    return Trial(candidate=Candidate(name, {}), note=note, held=held)


def _name(plan: Plan, workers: int) -> str:
    return " x ".join(word.removesuffix(f" of {workers}") for word in plan.words)


def _without_values(model: nn.Module) -> nn.Module:
    """Return a copy of a model on meta tensors, without allocating it."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = buffer.to("meta")
    return copy.deepcopy(model, memo)


def _why_not(find: Callable[[], Any]) -> str:
    try:
        find()
    except ValueError as error:
        return str(error)
    return ""
