"""Rows on parameter servers in the loops of Accelerate, transformers, Lightning and Fabric."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fleetx
import warm_start
from fleetx import fleet
from waiting import LIMIT

SCRIPT = Path(__file__).parent / "workers" / "served_loops.py"
STEPS, SAMPLES = 8, 64  # per epoch, as in the script


def run(folder: Path, library: str, *rest: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "fleetx.launch", "--server_num", "1", "--worker_num", "2"]
    command += ["--log_dir", str(folder / "log"), str(SCRIPT), str(folder), library, *rest]
    environment = warm_start.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    names = [f"{library}.{rank}{''.join(rest)}.json" for rank in range(2)]
    return [json.loads((folder / name).read_text()) for name in names]


def alone() -> list[float]:
    """Return the scores of the same model that one process has trained with whole batches."""
    torch.manual_seed(2)
    rows, head = fleetx.SparseEmbedding("user", 8), nn.Linear(8, 1)
    fleet.init()
    model = fleet.distributed_model(nn.Sequential(rows, head))
    optimizer = fleet.distributed_optimizer(torch.optim.Adam(model.parameters(), lr=0.05))
    index = torch.arange(SAMPLES)
    for _ in range(2):
        for batch in index.split(SAMPLES // STEPS):
            out = model(batch % 24 * 10**9).squeeze(-1)
            nn.functional.mse_loss(out, (batch % 5).float()).backward()
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        scores: list[float] = model(torch.arange(30) * 10**9).squeeze(-1).tolist()
    return scores


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_fleet")
@pytest.mark.parametrize("library", ["accelerate", "transformers", "lightning", "fabric"])
def test_two_workers_with_a_server_are_one_process(library: str, tmp_path: Path) -> None:
    told = run(tmp_path, library)
    again = run(tmp_path, library, "resume") if library == "lightning" else told
    for worker, resumed in zip(told, again, strict=True):
        assert worker["servers"] == 1
        assert worker["scores"] == pytest.approx(alone(), abs=1e-4)
        # The library's own resume brings back rows, parameters and their optimizer's state.
        assert resumed["losses"][-STEPS:] == worker["losses"][STEPS : 2 * STEPS]
        assert resumed["scores"] == worker["scores"]
