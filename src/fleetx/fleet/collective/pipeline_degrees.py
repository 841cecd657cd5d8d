"""How many workers the pipeline of a program has: one for each device that its layers name."""

from __future__ import annotations

import copy
from typing import Any

from fleetx.static.graph.program import Program
from fleetx.techniques.pipeline_cut import devices_of


def with_stages(strategy: Any, program: Program, workers: int) -> Any:
    """Return the strategy with as many stages as the program has devices, unless it says how many;
    the workers that are left are copies of the pipeline."""
    stages = len(devices_of(program))
    is_given = int(strategy.hybrid_configs.get("pp_degree", 1)) > 1
    if workers < 2 or is_given:
        return strategy
    if stages < 2 or workers % stages:
        devices = f"{stages} device(s)" if stages else "no device"
        raise ValueError(
            f"the strategy switches on pipeline, and the layers of the program name {devices} "
            f"(device_guard), but the job has {workers} workers: build the layers under "
            "device_guard('gpu:0'), device_guard('gpu:1'), …, so that the number of devices is at "
            f"least 2 and divides {workers}."
        )
    found = copy.deepcopy(strategy)
    found.hybrid_configs = {**dict(strategy.hybrid_configs), "pp_degree": stages}
    return found
