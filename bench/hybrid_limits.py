"""A model that does not fit: each of four workers may take a third of the memory of DDP.

The limit is RLIMIT_DATA, above the memory of a worker when it is connected. DDP exceeds it;
sharding must reach the same losses as without a limit.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from groups import GroupContestant
from static_graph import figures

_SETTINGS = {"sharding": True, "sharding_configs": {"stage": 3}}


def _run(kind: str, limit_mb: float) -> dict[str, Any] | None:
    """Return the report of a training of four workers; None if it died."""
    arguments = (kind, json.dumps(_SETTINGS), str(limit_mb))
    group = GroupContestant(kind, "big_model.py", sys.executable, arguments, workers=4)
    try:
        group.start()
    except RuntimeError:
        return None
    group.stop()
    return group.facts


def fits_in_a_third() -> list[dict[str, Any]]:
    """Train with and without the limit."""
    ddp, free = _run("ddp", 0), _run("fleet", 0)
    if ddp is None or free is None:
        raise RuntimeError("a training without a limit has died.")
    limit = ddp["mb"] / 3
    if _run("ddp", limit) is not None:
        raise RuntimeError(f"DDP survives with {limit:.0f} MB: the limit has no effect.")
    limited = _run("fleet", limit)
    if limited is None:
        raise RuntimeError(f"sharding exceeded the limit of {limit:.0f} MB: it needs {free['mb']}.")
    what = "67 million parameters, 4 workers"
    memory = figures(f"{what}, peak MB", limited["mb"], "DDP", ddp["mb"], 0.333, False)
    loss = figures(
        f"{what}, last loss in a third of DDP's memory (DDP dies)",
        limited["losses"][-1],
        "without a limit",
        free["losses"][-1],
        1.0,
        False,
    )
    return [{**line, "ours_name": "fleetx, stage 3"} for line in (memory, loss)]
