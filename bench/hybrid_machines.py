"""Two machines of two workers, 200 Mbit/s between them: sharding inside a machine and local steps
with an outer momentum between, against FSDP2 over all four workers.

Speed comes from interleaved windows of 16 steps in network namespaces. Accuracy comes from whole
trainings on one machine, because the speed of a network does not change it.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

from contest import ROOT, contest
from groups import GroupContestant
from namespaces import Machines, machines
from static_graph import figures, row

_MBIT, _INTERVAL, _WORKERS, _BATCH, _STEPS = 200, 16, 4, 32, 960
_DATA = ROOT.parent / "shared" / "data" / "fashion-mnist.npz"
_SETTINGS: dict[str, Any] = {
    "sharding": True,
    "sharding_configs": {
        "stage": 3,
        "sharding_degree": 2,
        "sharding_segment_strategy": "segment_anchors",
        "segment_anchors": ["Linear"],
    },
    "localsgd": True,
    "localsgd_configs": {"k_steps": _INTERVAL, "outer_momentum": 0.5},
}


def _group(kind: str, where: Machines | None, seed: int = 0, steps: int = 0) -> GroupContestant:
    name = "fleetx, shards and local steps" if kind == "fleet" else "FSDP2 over all four"
    arguments = (kind, json.dumps(_SETTINGS), str(_DATA), str(seed), str(steps))
    return GroupContestant(
        name, "images_sharded.py", sys.executable, arguments, workers=_WORKERS, machines=where
    )


def two_machines(rounds: int) -> list[dict[str, Any]]:
    """Measure the speed of both ways, and the bytes between machines."""
    with machines(2, mbit=_MBIT) as where:
        mine, theirs = (_group(kind, where) for kind in ("fleet", "fsdp"))
        contest([mine, theirs], steps=_INTERVAL, rounds=rounds)
    what = f"2 x 2 workers, {_MBIT} Mbit/s"
    sent = [statistics.median(each.sent) / 1e6 for each in (mine, theirs)]
    line = figures(f"{what}, MB between machines per step", sent[0], theirs.name, sent[1], 1, False)
    return [
        row(f"{what}, samples/s", mine, theirs, 4, _BATCH * _WORKERS),
        {**line, "ours_name": mine.name},
    ]


def accuracy(seeds: int) -> list[dict[str, Any]]:
    """Train both ways to the end; compare their accuracy."""
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        for kind in ("fleet", "fsdp"):
            group = _group(kind, None, seed, _STEPS)
            group.start()
            group.stop()
            found.setdefault(group.name, []).append(group.facts["accuracy"])
    (mine, ours), (peer, theirs) = found.items()
    means = statistics.mean(ours), statistics.mean(theirs)
    what = f"2 x 2 workers, accuracy in % after {_STEPS} steps"
    goal = 1 - 0.25 / means[1]  # a quarter of a point less
    line = figures(what, means[0], peer, means[1], round(goal, 4), True)
    return [{**line, "ours_name": mine, "accuracies": found}]
