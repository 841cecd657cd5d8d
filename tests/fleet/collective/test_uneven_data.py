"""Workers with different numbers of batches do not hang: they join, or get a helpful error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import warm_start
from waiting import LIMIT

pytestmark = pytest.mark.slow  # starts jobs or servers

SCRIPT = Path(__file__).parent / "workers" / "train_uneven.py"


def run(folder: Path, *, join: bool) -> subprocess.CompletedProcess[str]:
    options = json.dumps({"join": join, "out": str(folder / "out")})
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", "2"]
    command += ["--log_dir", str(folder / "log"), str(SCRIPT), options]
    environment = warm_start.environment()
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)


def test_join_lets_loops_end_at_different_times(tmp_path: Path) -> None:
    done = run(tmp_path, join=True)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (json.loads((tmp_path / f"out.{rank}").read_text()) for rank in range(2))
    assert first == second
    assert first["steps"] == [8.0, 8.0]  # twice the longer loop of three, twice the even step


def test_without_join_the_error_says_what_to_do(tmp_path: Path) -> None:
    done = run(tmp_path, join=False)
    assert done.returncode != 0
    assert "with fleet.join(model):" in done.stdout + done.stderr
