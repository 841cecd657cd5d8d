"""A parallel layout of a model on the workers of a cluster, and the strategy for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fleetx.comm.layout import Degrees
from fleetx.fleet.planning.cluster import Cluster
from fleetx.fleet.planning.model_figures import ModelFigures


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Parallel degrees, the sharding stage, and whether activations are recomputed."""

    degrees: Degrees
    stage: int = 0
    """The sharding stage; 0 without sharding."""
    recompute: bool = False
    micro_batches: int = 1

    @property
    def name(self) -> str:
        """A short description of the plan."""
        degrees, words = self.degrees, []
        if degrees.mp > 1:
            words.append(f"tensor_parallel {degrees.mp}")
        if degrees.pp > 1:
            words.append(f"pipeline {degrees.pp}")
        if self.stage:
            words.append(f"sharding {self.stage} of {degrees.sharding}")
        if self.recompute:
            words.append("recompute")
        copies = f"{degrees.dp} {'copies' if degrees.dp > 1 else 'copy'}"
        return ", ".join([*words, copies])

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
        if self.recompute:
            found["recompute"] = True
            found["recompute_configs"] = {"checkpoints": list(figures.block_classes)}
        return found


def plans(figures: ModelFigures, cluster: Cluster) -> Iterator[Plan]:
    """Yield parallel layouts: shards and divided layers together, or a pipeline of either.

    A worker of a pipeline has the gradients of its whole stage, so higher stages of sharding would
    save nothing.
    """
    workers = cluster.workers
    # Activations should only cross links inside a machine.
    layers = [n for n in _divisors(workers) if n <= cluster.per_machine] if figures.styles else [1]
    for mp in layers:
        for sharding in _divisors(workers // mp):
            degrees = Degrees(dp=workers // mp // sharding, sharding=sharding, mp=mp)
            stages = (0,) if sharding == 1 else (3,) if mp > 1 else (1, 2, 3)
            for stage in stages:
                yield from _with_recompute(Plan(degrees=degrees, stage=stage), figures)
    for pp in _divisors(workers):
        if 1 < pp <= len(figures.layers) and figures.samples % pp == 0:
            micro = max(m for m in _divisors(figures.samples) if m <= 4 * pp and m % pp == 0)
            for parts in _divisors(workers // pp):
                degrees = Degrees(dp=workers // pp // parts, pp=pp, sharding=parts)
                yield Plan(degrees=degrees, stage=int(parts > 1), micro_batches=micro)
                if parts > 1 and parts in layers:
                    degrees = Degrees(dp=workers // pp // parts, pp=pp, mp=parts)
                    yield Plan(degrees=degrees, micro_batches=micro)


def _with_recompute(plan: Plan, figures: ModelFigures) -> Iterator[Plan]:
    yield plan
    if figures.blocks:
        yield Plan(degrees=plan.degrees, stage=plan.stage, recompute=True)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
