"""Sharding against FSDP2 and DistributedDataParallel by hand: a small GPT, Adam, 2 and 4 workers
with one thread each, Gloo.

    python bench/hybrid.py [--rounds 9] [--workers 2,4]

Memory is what worker 0 holds of parameters, gradients and optimizer state when backward has ended.
FSDP2 that keeps parameters after forward is the peer of stage 2. Figures go to
bench/results/hybrid.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from contest import contest
from groups import GroupContestant
from record import write_record
from static_graph import figures, row, show

_BATCH = 4


def group(name: str, workers: int, *arguments: str) -> GroupContestant:
    """Return a group of workers."""
    return GroupContestant(name, "gpt_sharded.py", sys.executable, arguments, workers=workers)


def ours(stage: int, workers: int) -> GroupContestant:
    """Return a group that trains with a stage of sharding."""
    settings = {"sharding": True, "sharding_configs": {"stage": stage}}
    return group(f"fleetx, stage {stage}", workers, "fleet", json.dumps(settings))


def rows(workers: int, rounds: int) -> list[dict[str, Any]]:
    """Measure speed and memory with so many workers, in interleaved rounds."""
    second, third = ours(2, workers), ours(3, workers)
    keeping = group("FSDP2 by hand, keeping parameters", workers, "fsdp", "2")
    dropping = group("FSDP2 by hand", workers, "fsdp", "3")
    ddp = group("DDP by hand", workers, "ddp")
    everyone = [second, third, keeping, dropping, ddp]
    contest(everyone, steps=3, rounds=rounds)
    what = f"GPT, {workers} workers"
    size = workers * _BATCH
    lines = [
        row(f"{what}, samples/s", second, keeping, 0.98, size),
        row(f"{what}, samples/s", third, dropping, 0.98, size),
    ]
    theirs = sum(ddp.facts["held_mb"].values())
    for each, goal in ((second, 0.75), (third, 0.52 if workers == 2 else 0.32)):
        mine = sum(each.facts["held_mb"].values())
        line = figures(f"{what}, MB held", mine, ddp.name, theirs, goal, False)
        lines.append({**line, "ours_name": each.name})
    return lines


def main() -> None:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each contestant")
    parser.add_argument("--workers", default="2,4", help="numbers of workers, joined by commas")
    options = parser.parse_args()
    numbers = [int(number) for number in options.workers.split(",")]
    lines = [line for workers in numbers for line in rows(workers, options.rounds)]
    show(lines, "sharding")
    write_record("hybrid", rows=lines)


if __name__ == "__main__":
    main()
