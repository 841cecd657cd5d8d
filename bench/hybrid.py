"""Sharded, pipelined and tensor-parallel models against PyTorch's engines by hand: a small GPT,
Adam, 2 and 4 workers with one thread each, Gloo.

    python bench/hybrid.py [--rounds 9] [--seeds 3]
        [--only sharding2,sharding4,pipeline,tensor,machines,accuracy,limits]

Memory is what worker 0 holds of parameters, gradients and optimizer state when backward has ended.
FSDP2 that keeps parameters after forward is the peer of stage 2. Two machines need root (see
namespaces.py) and are skipped otherwise. Figures go to bench/results/hybrid.json; those of parts
that were not run again are kept.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from contest import contest
from contestants.layered_gpt import PLAN
from groups import GroupContestant
from hybrid_limits import fits_in_a_third
from hybrid_machines import accuracy, two_machines
from parts import Part, parts_parser, run_parts
from static_graph import figures, row

_BATCH = 4  # of a worker, with sharding
_WHOLE_BATCH = 16  # of a copy whose layers are divided
_MICRO = 8


def group(name: str, script: str, workers: int, *arguments: str) -> GroupContestant:
    """Return a group of workers."""
    return GroupContestant(name, script, sys.executable, arguments, workers=workers)


def ours(stage: int, workers: int) -> GroupContestant:
    """Return a group that trains with a stage of sharding."""
    settings = {"sharding": True, "sharding_configs": {"stage": stage}}
    return group(f"fleetx, stage {stage}", "gpt_sharded.py", workers, "fleet", json.dumps(settings))


def sharding(workers: int, rounds: int) -> list[dict[str, Any]]:
    """Measure speed and memory with a number of workers, in interleaved rounds."""
    second, third = ours(2, workers), ours(3, workers)
    script = "gpt_sharded.py"
    keeping = group("FSDP2 by hand, keeping parameters", script, workers, "fsdp", "2")
    dropping = group("FSDP2 by hand", script, workers, "fsdp", "3")
    ddp = group("DDP by hand", script, workers, "ddp")
    contest([second, third, keeping, dropping, ddp], steps=3, rounds=rounds)
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


def divided(kind: str, settings: dict[str, Any], peer: str, rounds: int) -> list[dict[str, Any]]:
    """Measure the speed against torch's engine of this kind."""
    script = "gpt_divided.py"
    mine = group(f"fleetx, {kind}", script, 2, "fleet", json.dumps(settings))
    theirs = group(f"{peer} by hand", script, 2, kind)
    contest([mine, theirs], steps=3, rounds=rounds)
    return [row(f"GPT, {kind} of 2, samples/s", mine, theirs, 0.98, _WHOLE_BATCH)]


def main() -> None:
    """Measure, print the table and write the figures."""
    parser = parts_parser(__doc__, 9)
    parser.add_argument("--seeds", type=int, default=3, help="trainings that compare accuracy")
    options = parser.parse_args()
    rounds = options.rounds
    pipeline = {"pipeline": True, "pipeline_configs": {"accumulate_steps": _MICRO}}
    tensor = {
        "tensor_parallel": True,
        "tensor_parallel_configs": {
            "tensor_parallel_degree": 2,
            "plan": [f"{name}: {style}" for name, style in PLAN.items()],
        },
    }
    parts: dict[str, Part] = {
        "sharding2": lambda: sharding(2, rounds),
        "sharding4": lambda: sharding(4, rounds),
        "pipeline": lambda: divided(
            "pipeline", pipeline, "torch.distributed.pipelining", 2 * rounds
        ),
        "tensor": lambda: divided("tensor", tensor, "parallelize_module", 2 * rounds),
        "machines": lambda: two_machines(max(2, rounds // 4)),
        "accuracy": lambda: accuracy(options.seeds),
        "limits": fits_in_a_third,
    }
    run_parts("hybrid", "Divided models", parts, parser)


if __name__ == "__main__":
    main()
