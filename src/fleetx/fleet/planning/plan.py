"""A parallel layout of a model on the workers of a cluster, and the strategy for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fleetx.comm.layout import Degrees
from fleetx.fleet.planning.model_figures import ModelFigures


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Parallel degrees, the sharding stage, and whether activations are recomputed."""

    degrees: Degrees
    stage: int = 0
    """The sharding stage; 0 without sharding."""
    recompute: bool = False
    micro_batches: int = 1
    joins: bool = False
    """Whether the workers of a copy bring different samples, and train on all of them."""

    @property
    def batches(self) -> int:
        """How many workers' batches a copy trains on."""
        return self.degrees.mp * self.degrees.pp if self.joins else 1

    @property
    def name(self) -> str:
        """A short description of the plan."""
        copies = f"{self.degrees.dp} {'copies' if self.degrees.dp > 1 else 'copy'}"
        return ", ".join([*self.words, copies])

    @property
    def words(self) -> list[str]:
        """What it switches on."""
        degrees, words = self.degrees, []
        if degrees.mp > 1:
            words.append(f"tensor_parallel {degrees.mp}")
        if degrees.pp > 1:
            words.append(f"pipeline {degrees.pp}")
        if self.stage:
            words.append(f"sharding {self.stage} of {degrees.sharding}")
        if self.recompute:
            words.append("recompute")
        return words

    def settings(self, figures: ModelFigures) -> dict[str, Any]:
        """Return the settings of a strategy for this plan."""
        degrees = self.degrees
        found: dict[str, Any] = {}
        if self.stage:
            found["sharding"] = True
            found["sharding_configs"] = {"stage": self.stage, "sharding_degree": degrees.sharding}
        if degrees.mp > 1:
            found["tensor_parallel"] = True
            found["tensor_parallel_configs"] = {"tensor_parallel_degree": degrees.mp}
        if degrees.pp > 1:
            found["pipeline"] = True
            found["pipeline_configs"] = {"accumulate_steps": self.micro_batches}
            found["hybrid_configs"] = {"pp_degree": degrees.pp}
        if self.batches > 1:
            found.setdefault("hybrid_configs", {})["joined_batches"] = True
        if self.recompute:
            found["recompute"] = True
            found["recompute_configs"] = {"checkpoints": list(figures.block_classes)}
        return found


def plans(
    figures: ModelFigures, workers: int, per_machine: int, *, joins: bool = False
) -> Iterator[Plan]:
    """Yield parallel layouts: shards and divided layers together, or a pipeline of either.

    With `joins`, the workers of a copy bring different samples.
    A worker of a pipeline has the gradients of its whole stage, so higher stages of sharding would
    save nothing.
    """
    # Activations should only cross links inside a machine.
    layers = [n for n in _divisors(workers) if n <= per_machine] if figures.styles else [1]
    for mp in layers:
        for sharding in _divisors(workers // mp):
            degrees = Degrees(dp=workers // mp // sharding, sharding=sharding, mp=mp)
            stages = (0,) if sharding == 1 else (3,) if mp > 1 else (1, 2, 3)
            for stage in stages:
                yield from _with_recompute(Plan(degrees=degrees, stage=stage, joins=joins), figures)
    for pp in _divisors(workers):
        if not 1 < pp <= len(figures.layers):
            continue
        for parts in _divisors(workers // pp):
            copies = workers // pp // parts
            ways = [Plan(degrees=Degrees(dp=copies, pp=pp, sharding=parts), stage=int(parts > 1))]
            if parts > 1 and parts in layers:
                ways.append(Plan(degrees=Degrees(dp=copies, pp=pp, mp=parts)))
            for way in (replace(each, joins=joins) for each in ways):
                micro = _micro_batches(figures.samples * way.batches, pp)
                if micro:
                    yield replace(way, micro_batches=micro)


def _micro_batches(samples: int, stages: int) -> int:
    """Return into how many micro-batches a pipeline divides a batch; 0 if it cannot. More of them
    leave stages less idle; beyond four per stage, little is gained."""
    fitting = [m for m in _divisors(samples) if m <= 4 * stages and m % stages == 0]
    return max(fitting, default=0)


def idle_factor(plan: Plan) -> float:
    """Return how much longer a pipeline takes than its micro-batches: a stage waits for the first
    one, and at the end for the last."""
    return (plan.micro_batches + plan.degrees.pp - 1) / plan.micro_batches


def _with_recompute(plan: Plan, figures: ModelFigures) -> Iterator[Plan]:
    yield plan
    if figures.blocks:
        yield replace(plan, recompute=True)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
