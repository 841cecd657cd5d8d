"""Paddle scripts of 1.x and 2.x: two workers train equally, and as in Fleet's documents."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import warm_start
from waiting import LIMIT

pytestmark = pytest.mark.slow  # starts jobs or servers

SCRIPT = str(Path(__file__).parent / "workers" / "train_paddle.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("version", ["1", "2"])
def test_two_workers(version: str, tmp_path: Path) -> None:
    out = str(tmp_path / "heard")
    environment = warm_start.environment()
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", "2"]
    command += ["--log_dir", str(tmp_path / "log"), SCRIPT, version, out]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    mine, other = (json.loads(Path(f"{out}.{i}").read_text()) for i in range(2))
    assert mine["first"] == other["first"]
    assert mine["last"] == other["last"]
    assert not np.allclose(mine["first"], mine["last"])
    assert mine["communicates"]
    assert not mine["origin_communicates"]
    if version == "2":
        assert mine["losses"] == other["losses"]
        assert mine["losses"][-1] != mine["losses"][0]
