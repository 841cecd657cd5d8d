"""Predictions of `fleetx plan` against measurements: a small GPT with Adam on two machines of one
worker, 200 Mbit/s between them (network namespaces, root).

    python bench/plan.py [--steps 4] [--rounds 3]

The speed of a worker is that of one training alone on this machine. Figures go to
bench/results/plan.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import torch
from contest import HERE, contest
from goals import goal, show
from groups import GroupContestant
from namespaces import machines
from record import write_record

from fleetx.comm.layout import Degrees
from fleetx.fleet.planning.cluster import Cluster
from fleetx.fleet.planning.costs import costs_of
from fleetx.fleet.planning.model_figures import ModelFigures, examine
from fleetx.fleet.planning.plan import Plan

_MBIT, _MEMORY, _ADAM = 200, 24e9, 2


def figures() -> ModelFigures:
    """Return the figures of the model that contestants train."""
    sys.path.insert(0, str(HERE / "contestants"))
    from small_gpt import batches, network

    with torch.device("meta"):
        model = network()
    return examine(model, (batches(0)[0].to("meta"),))


def seconds_of(group: GroupContestant) -> float:
    """Return the seconds of a step."""
    return 1 / group.rate


def main() -> None:
    """Measure, predict, print and write the errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant")
    options = parser.parse_args()
    script = "gpt_sharded.py"
    alone = GroupContestant("alone", script, sys.executable, ("ddp",), workers=1)
    contest([alone], steps=options.steps, rounds=2 * options.rounds)
    model = figures()
    cluster = Cluster(
        workers=2,
        per_machine=1,
        memory=_MEMORY,
        bandwidth=_MBIT / 8 * 1e6,
        inside=1e9,
        flops=model.operations / seconds_of(alone),
        device="cpu",
    )
    plans = [Plan(degrees=Degrees(dp=2))]
    plans += [Plan(degrees=Degrees(sharding=2), stage=stage) for stage in (1, 2, 3)]
    rows: list[dict[str, Any]] = []
    with machines(2, mbit=_MBIT) as where:
        for plan in plans:
            settings = json.dumps(plan.settings(model))
            group = GroupContestant(
                plan.name, script, sys.executable, ("fleet", settings), machines=where
            )
            contest([group], steps=options.steps, rounds=options.rounds)
            measured = seconds_of(group)
            predicted = costs_of(plan, model, cluster, _ADAM).seconds
            text = f"{plan.name}: predicted {predicted:.3f} s, measured {measured:.3f} s; error"
            rows.append(goal(text, abs(predicted / measured - 1), 0.2, at_least=False))
    show(rows)
    write_record("plan", goals=rows, alone_s=seconds_of(alone))


if __name__ == "__main__":
    main()
