"""What tests of divided models share: jobs and fixtures, one process to compare with, and how."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from running import run
from torch import nn
from workers.divided_pairs import OPTIMIZERS, STEPS, Pairs, values

from fleetx import fleet
from fleetx.step.technique import Job
from fleetx.techniques.sharding_parameters import can_divide

needs_torch = pytest.mark.skipif(
    not can_divide(), reason="dividing models needs PyTorch 2.7 or newer"
)
Values = dict[str, Any]
Results = list[dict[str, Any]]


def job_fixtures(script: str) -> tuple[Any, Any]:
    """Return the fixtures `folder` and `trained`: where four workers write, and what they wrote."""

    @pytest.fixture(scope="module")
    def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp(Path(script).stem)

    @pytest.fixture(scope="module")
    def trained(folder: Path) -> Results:
        return run(script, folder, workers=4)

    return folder, trained


@cache
def alone(worker: ModuleType, kind: str, *model: Any) -> Values:
    """Return the parameters that one process gets on whole batches, by torch alone: the model, the
    batches and the loss of a worker's script."""
    made = worker.network(*model)
    optimizer = OPTIMIZERS[kind](made.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        worker.loss_of(made, worker.batch(step)).backward()
        optimizer.step()
    return dict(values(made))


def bytes_to_train(model: nn.Module) -> int:
    """Return the bytes of what one process trains with AdamW: parameters, gradients and state."""
    return 4 * sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)


def job(workers: int = 2, **settings: Any) -> Job:
    """Return a job of so many workers."""
    strategy = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, value)
    return Job(strategy=strategy, workers=workers)


def assert_close(found: Values, expected: Values, within: float = 1e-10) -> None:
    """Compare parameters by name."""
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(
            torch.tensor(found[name], dtype=torch.float64),
            torch.tensor(value, dtype=torch.float64),
            rtol=0.0,
            atol=within,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def assert_resumed(
    saved: Results, pair: Pairs, settings: dict[str, Any], folder: Path, expected: Values
) -> None:
    """Compare workers that went on after a checkpoint with those that loaded it, and with one
    worker that goes on from the same files by the same script."""
    for found in saved:
        assert_close(found["straight"], expected)
        assert_close(found["resumed"], expected)
    assert_close(pair.resumed(settings, folder), expected)
