"""Collective training against hand-written DistributedDataParallel and real Paddle's static Fleet:
two workers, one thread each, Gloo; then over a network of 200 Mbit/s, where bytes matter.

    python bench/collective.py [--rounds 12] [--only mlp,bert,resnet18,fp16,hierarchical]

Real Paddle takes part if the variable PADDLE262 names a Python that has it; the slow network needs
root (see namespaces.py) and is skipped otherwise. Figures go to bench/results/collective.json;
those of parts that were not run again are kept.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from typing import Any

from contest import contest
from contestants.small_data import SHAPES
from groups import GroupContestant
from namespaces import machines
from parts import Part, parts_parser, run_parts
from static_graph import figures, row

MBIT = 200
NAMES = {"mlp": "MLP", "wide": "MLP of 17 MB", "bert": "small BERT", "resnet18": "ResNet-18"}


def group(name: str, kind: str, net: str, **settings: Any) -> GroupContestant:
    """Return a group that trains a network; settings are those of the strategy."""
    return GroupContestant(
        name, f"collective_{kind}.py", sys.executable, (net, json.dumps(settings))
    )


def one_machine(net: str, *, steps: int, rounds: int, starts: int) -> list[dict[str, Any]]:
    """Measure samples per second on one machine, in interleaved rounds."""
    ddp, eager = group("DDP by hand", "ddp", net), group("fleetx, eager", "fleet", net)
    ours, paddle = [eager], []
    if net != "bert":  # a PyTorch module
        ours.append(group("fleetx, static", "static", net))
        if os.environ.get("PADDLE262"):
            paddle.append(group("Paddle 2.6.2, static", "static", net))
            paddle[0].python, paddle[0].ours = os.environ["PADDLE262"], False
    contest([*ours, ddp, *paddle], steps=steps, rounds=rounds, starts=starts)
    size = 2 * SHAPES[net][0][0]
    what = f"{NAMES[net]} samples/s"
    rows = [row(what, each, ddp, 0.98, size) for each in ours]
    goal = 2.0 if net == "mlp" else 1.2
    return rows + [row(what, ours[-1], each, goal, size) for each in paddle]


def bytes_row(what: str, ours: GroupContestant, other: GroupContestant, goal: float) -> Any:
    """Return a row for the bytes that leave a machine per step; fewer are better."""
    mine, theirs = (statistics.median(each.sent) / 1e6 for each in (ours, other))
    line = figures(f"{what}, MB per step and direction", mine, other.name, theirs, goal, False)
    return {**line, "ours_name": ours.name}


def half_precision(net: str, rounds: int) -> list[dict[str, Any]]:
    """Compare float16 with float32 gradients between two machines."""
    what = f"{NAMES[net]}, {MBIT} Mbit/s"
    with machines(2, mbit=MBIT) as pair:
        ddp = group("DDP by hand", "ddp", net)
        eager = group("fleetx, eager, fp16_allreduce", "fleet", net, fp16_allreduce=True)
        static = group("fleetx, static, fp16_allreduce", "static", net, fp16_allreduce=True)
        everyone = [eager, static, ddp]
        for each in everyone:
            each.machines = pair
        contest(everyone, steps=2, rounds=rounds)
    size = 2 * SHAPES[net][0][0]
    rows = [row(f"{what}, samples/s", each, ddp, 1.7, size) for each in (eager, static)]
    return [*rows, *(bytes_row(what, each, ddp, 0.55) for each in (eager, static))]


def hierarchical(rounds: int) -> list[dict[str, Any]]:
    """Compare hierarchical with flat all-reduce on two machines with two workers each."""
    net, what = "resnet18", f"ResNet-18, 2x2 workers, {MBIT} Mbit/s between"
    layered = {"use_hierarchical_allreduce": True, "hierarchical_allreduce_inter_nranks": 2}
    with machines(2, mbit=MBIT) as pair:
        ddp = group("DDP by hand", "ddp", net)
        flat = group("fleetx, eager, flat", "fleet", net)
        eager = group("fleetx, eager, hierarchical", "fleet", net, **layered)
        static = group("fleetx, static, hierarchical", "static", net, **layered)
        everyone = [eager, static, flat, ddp]
        for each in everyone:
            each.machines, each.workers = pair, 4
        for each in (eager, static):  # as set by fleetrun
            each.variables["FLEETX_SHARED_MEMORY"] = "1"
        contest(everyone, steps=2, rounds=rounds)
    size = 4 * SHAPES[net][0][0]
    pairs = [(eager, ddp), (eager, flat), (static, ddp)]
    rows = [row(f"{what}, samples/s", mine, other, 1.0, size) for mine, other in pairs]
    return [*rows, *(bytes_row(what, mine, other, 0.7) for mine, other in pairs)]


def main() -> None:
    """Run the comparisons, print the table and write the figures."""
    parser = parts_parser(__doc__, 12)
    rounds = parser.parse_args().rounds
    few = max(3, rounds // 3)
    parts: dict[str, Part] = {
        "mlp": lambda: one_machine("mlp", steps=100, rounds=rounds, starts=5),
        "bert": lambda: one_machine("bert", steps=5, rounds=rounds, starts=2),
        "resnet18": lambda: one_machine("resnet18", steps=4, rounds=rounds, starts=2),
        "fp16": lambda: half_precision("wide", few) + half_precision("resnet18", few),
        "hierarchical": lambda: hierarchical(few),
    }
    title = "Collective training: Fleet against DDP by hand and real Paddle"
    run_parts("collective", title, parts, parser)


if __name__ == "__main__":
    main()
