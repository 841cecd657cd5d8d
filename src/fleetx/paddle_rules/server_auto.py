"""`auto` in a job with parameter servers, as the package `paddle` has it.

Paddle measures nothing there: with SGD, if five copies of the parameters and the activations of
1024 samples fit into the free memory, it selects geo training with an exchange every 800 steps;
otherwise asynchronous training.
"""

from __future__ import annotations

import copy
import logging
import math
import os
from typing import Any

from fleetx.static.graph.dtypes import to_torch
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable

GEO_STEPS = 800
_BATCH = 1024
_COPIES = 5
_log = logging.getLogger("fleetx.fleet")


def check_geo(strategy: Any, optimizer: Any) -> None:
    """Reject geo training by `k_steps` with an optimizer that Paddle does not support for it."""
    steps = strategy.a_sync_configs["k_steps"]
    if strategy.a_sync and steps > 0 and not _is_sgd(optimizer):
        raise ValueError(
            f"a_sync_configs['k_steps'] is {steps} with {type(optimizer).__name__}, but geo "
            "training sums the workers' changes, which is correct for SGD only: use SGD, or "
            "k_steps=0."
        )


def _is_sgd(optimizer: Any) -> bool:
    return type(optimizer).__name__.removesuffix("Optimizer") == "SGD"


def with_mode(strategy: Any, optimizer: Any, program: Program) -> Any:
    """Return the strategy with the mode that `auto` selects; unchanged if it has one."""
    if strategy.a_sync_configs["k_steps"] >= 0:
        return strategy
    steps = GEO_STEPS if _trains_alone(optimizer, program) else 0
    chosen = copy.deepcopy(strategy)
    chosen.a_sync = True
    chosen.a_sync_configs = {"k_steps": steps}
    _log.info("strategy.auto: %s", f"geo, every {steps} steps" if steps else "async")
    return chosen


def _trains_alone(optimizer: Any, program: Program) -> bool:
    if not _is_sgd(optimizer):
        return False
    variables = program.global_block().vars.values()
    kept = sum(_bytes(var) for var in variables if var.persistable)
    passing = sum(_bytes(var) for var in variables if not var.persistable)
    return _COPIES * kept + passing < _free_memory()


def _bytes(var: Variable) -> int:
    if var.dtype is None:
        return 0
    extents = [_BATCH if extent < 0 else extent for extent in var.shape]
    return math.prod(extents) * to_torch(var.dtype).itemsize


def _free_memory() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
