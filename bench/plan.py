"""Predictions of `fleetx plan` against measurements: small GPTs with Adam on two machines of one
worker, 200 Mbit/s between them (network namespaces, root).

    python bench/plan.py [--steps 2] [--rounds 3] [--only sharding]

Copies and shards train a GPT that is called as a whole; divided layers and stages one that is made
of layers. The speed of a worker is that of two trainings of the same model at the same time,
without an exchange: the two machines share this one. They take turns with the plans, so that other
load affects all of them. Figures go to bench/results/plan.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from typing import Any

import torch
from contest import HERE, contest
from goals import goal, show
from groups import GroupContestant
from namespaces import Machines, machines
from record import write_record

from fleetx.comm.layout import Degrees
from fleetx.fleet.planning.cluster import Cluster
from fleetx.fleet.planning.costs import costs_of
from fleetx.fleet.planning.model_figures import ModelFigures, examine
from fleetx.fleet.planning.plan import Plan

_MBIT, _MEMORY, _ADAM = 200, 24e9, 2
_LAYERED_BATCH = 16  # of contestants/gpt_divided.py


@dataclass
class Model:
    """A model of the contestants: its script, its figures, and plans to compare."""

    script: str
    figures: ModelFigures
    plans: list[Plan]


def models() -> list[Model]:
    """Return what is trained, and the plans to compare."""
    sys.path.insert(0, str(HERE / "contestants"))
    import layered_gpt
    import small_gpt

    with torch.device("meta"):
        whole, layered = small_gpt.network(), layered_gpt.network()
    layered.tensor_parallel_plan = layered_gpt.PLAN
    shards = [Plan(degrees=Degrees(sharding=2), stage=stage) for stage in (1, 2, 3)]
    inputs = layered_gpt.batches(_LAYERED_BATCH)[0][0]
    divided = [
        Plan(degrees=Degrees(mp=2)),
        Plan(degrees=Degrees(pp=2), micro_batches=8),
    ]
    return [
        Model(
            "gpt_sharded.py",
            examine(whole, (small_gpt.batches(0)[0].to("meta"),)),
            [Plan(degrees=Degrees(dp=2)), *shards],
        ),
        Model("gpt_divided.py", examine(layered, (inputs.to("meta"),)), divided),
    ]


def settings_of(plan: Plan, model: Model) -> str:
    """Return the settings of a contestant as JSON."""
    found = plan.settings(model.figures)
    if plan.degrees.mp > 1:  # the contestant's module has no plan of its own
        lines = [f"{name}: {style}" for name, style in model.figures.styles.items()]
        found["tensor_parallel_configs"]["plan"] = lines
    return json.dumps(found)


def compare(model: Model, plans: list[Plan], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the errors of predicted step times, and what was sent."""
    alone = GroupContestant("alone", model.script, sys.executable, ("alone",))
    with machines(2, mbit=_MBIT) as where:
        groups = [_group(plan, model, where) for plan in plans]
        contest([alone, *groups], steps=options.steps, rounds=options.rounds)
    cluster = Cluster(
        workers=2,
        per_machine=1,
        memory=_MEMORY,
        bandwidth=_MBIT / 8 * 1e6,
        inside=1e9,
        flops=model.figures.operations * alone.rate,
        device="cpu",
    )
    found = []
    for plan, group in zip(plans, groups, strict=True):
        costs, measured = costs_of(plan, model.figures, cluster, _ADAM), 1 / group.rate
        text = f"{plan.name}: predicted {costs.seconds:.3f} s, measured {measured:.3f} s; error"
        row = goal(text, abs(costs.seconds / measured - 1), 0.2, at_least=False)
        figures = {
            "alone_s": 1 / alone.rate,
            "sent_mb": statistics.median(group.sent) / 1e6,
            "predicted_mb": costs.between / 1e6,
        }
        found.append({**row, **figures})
    return found


def _group(plan: Plan, model: Model, where: Machines) -> GroupContestant:
    arguments = ("fleet", settings_of(plan, model))
    return GroupContestant(plan.name, model.script, sys.executable, arguments, machines=where)


def main() -> None:
    """Measure, predict, print and write the errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=2, help="steps of a turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant")
    parser.add_argument("--only", default="", help="plans whose name contains this")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for model in models():
        plans = [plan for plan in model.plans if options.only in plan.name]
        rows += compare(model, plans, options) if plans else []
    show(rows)
    for row in rows:
        sent = f"{row['sent_mb']:.2f} MB between machines, {row['predicted_mb']:.2f} predicted"
        print(f"{row['what'].partition(':')[0]}: {sent}; {row['alone_s']:.3f} s alone")
    if not options.only:
        write_record("plan", goals=rows)


if __name__ == "__main__":
    main()
