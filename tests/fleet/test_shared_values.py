"""Reductions return what they were given; objects reach all workers; one worker prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import warm_start
from fleetx import fleet
from waiting import LIMIT

SCRIPT = str(Path(__file__).parent / "workers" / "shared_values.py")


@pytest.mark.slow
def test_two_workers_share_values(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", "2"]
    command += ["--log_dir", str(tmp_path / "log"), SCRIPT, str(tmp_path)]
    environment = warm_start.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        told = json.loads((tmp_path / f"{rank}.json").read_text())
        assert told["tensor"] == [[2, 5], "torch.int32", [1, 2 + rank]]
        assert told["mean"] == [[1.0, 2.5], True]
        assert told["half"] == [[2.0, 2.0], "torch.bfloat16"]
        assert told["number"] == [3, "int"]
        assert told["float"] == 1.5
        assert told["array"] == ["ndarray", [2.0, 2.0]]
        assert told["object"] == [1, [1, 2, 3], [1, None]]
        assert told["refused"].startswith("fleet.broadcast_object was given an object on worker 0")
    logs = "".join((tmp_path / "log" / f"workerlog.{rank}").read_text() for rank in range(2))
    assert logs.count("printed by worker") == 1
    assert "printed by worker 0" in logs


@pytest.mark.usefixtures("fresh_fleet")
def test_one_worker_gets_its_own_value(capsys: pytest.CaptureFixture[str]) -> None:
    fleet.init(is_collective=True)
    given = torch.ones(2)
    result = fleet.all_reduce(given)
    assert torch.equal(result, given)
    assert result is not given
    assert fleet.all_reduce(3) == 3
    assert fleet.all_reduce([[1, 2.5]], "mean") == [[1.0, 2.5]]
    assert isinstance(fleet.all_reduce(np.ones(1)), np.ndarray)
    assert fleet.broadcast_object({"a": 1}) == {"a": 1}
    with pytest.raises(ValueError, match="there is no worker 1: the job has 1"):
        fleet.broadcast_object(1, 1)
    with pytest.raises(ValueError, match="unknown mode: 'avg'"):
        fleet.all_reduce(1, "avg")
    fleet.print("a", "b", sep="-")
    assert capsys.readouterr().out == "a-b\n"
