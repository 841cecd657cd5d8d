"""Registering what a session trains with the monitor, so that it can be measured on request.

This module attaches nothing to a step: the monitor does that, only while it measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from fleetx.fleet.collective.explain import Explanation, memory, travels
from fleetx.fleet.roles.role_maker import RoleMakerBase
from fleetx.monitor import run
from fleetx.monitor.eager import EagerTarget
from fleetx.monitor.programs import ProgramTarget
from fleetx.monitor.targets import targets
from fleetx.static.graph.program import Program
from fleetx.step.train_step import TrainStep


def observe_session(role: RoleMakerBase, *, has_group: bool) -> None:
    """Start monitoring a new session if the environment requests it."""
    asked = run.begin_session()
    if asked is not None and role.is_worker():
        rank, workers = role.worker_index(), role.worker_num()
        run.start(replace(asked, rank=rank, workers=workers, has_group=has_group))


def wants_timeline() -> bool:
    """Return whether the environment requests a timeline."""
    return run.asked_settings().timeline is not None


def observe_step(step: TrainStep, model: nn.Module | None, explanation: Explanation) -> None:
    """Register the step of a PyTorch module."""
    targets.add(id(step), EagerTarget(step, model))
    describe(explanation)


def describe(explanation: Explanation) -> None:
    """Let reports show a step as it is explained now."""
    run.describe(_rows(explanation))


def observe_program(program: Program, loss: str, explanation: Explanation) -> None:
    """Register a training program."""
    targets.add(id(program), ProgramTarget(program, loss))
    describe(explanation)


def _rows(explanation: Explanation) -> Sequence[dict[str, Any]]:
    return [
        {
            "stage": str(row.stage),
            "technique": row.technique,
            "settings": row.settings,
            "sent": travels(row),
            "memory": memory(row.memory),
        }
        for row in explanation.rows
    ]
