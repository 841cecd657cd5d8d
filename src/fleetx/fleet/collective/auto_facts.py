"""The facts that a choice of `auto` depends on: a stored choice is reused only if all are
identical.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch

import fleetx
from fleetx.fleet.strategy.agreement_card import settings_of
from fleetx.step.technique import Job
from fleetx.techniques.auto_candidates import Facts

# How auto measures and where it stores the result do not affect which choice is best.
_NOT_THE_JOB = {f"strategy.auto_configs.{key}" for key in ("file", "steps", "time_limit")}


def gather(
    job: Job,
    *,
    machines: int,
    device: torch.device,
    layers: Iterable[str],
    parameters: Sequence[tuple[str, Sequence[int], str]],
    optimizer: Any,
    batch: str,
) -> Facts:
    """Return the facts of a job; parameters are names, shapes and types."""
    text = "\n".join(
        [*layers, *(f"{name} {tuple(shape)} {kind}" for name, shape, kind in parameters)]
    )
    return Facts(
        workers=1 if job.servers is not None else job.workers,
        servers=0 if job.servers is None else job.servers.count,
        machines=machines,
        device=device.type,
        hardware=_hardware(device),
        parameters=sum(torch.Size(shape).numel() for _, shape, _ in parameters),
        model=hashlib.sha256(text.encode()).hexdigest()[:16],
        optimizer=type(optimizer).__name__,
        batch=batch,
        strategy=_changed(job.strategy),
        versions=f"torch {torch.__version__}, fleetx {fleetx.__version__}",
    )


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"


def _changed(strategy: Any) -> dict[str, str]:
    """Return the settings that differ from the defaults."""
    usual, found = settings_of(type(strategy)()), settings_of(strategy)
    return {
        name: text
        for name, text in found.items()
        if text != usual.get(name) and name not in _NOT_THE_JOB
    }
