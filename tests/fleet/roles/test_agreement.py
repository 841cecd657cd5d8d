"""Workers that were started for different jobs get an error instead of waiting for each other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_talking import environment, run_all

from ports import free_ports
from waiting import LIMIT

pytestmark = pytest.mark.slow  # starts jobs or servers

SCRIPT = str(Path(__file__).parent / "workers" / "disagree.py")
CASES = 8


def test_two_workers_that_differ(tmp_path: Path) -> None:
    ports = [str(port) for port in free_ports(CASES)]
    command = [sys.executable, SCRIPT, "all", str(tmp_path), *ports]
    places = [environment(RANK=str(rank), MASTER_ADDR="127.0.0.1") for rank in range(2)]
    run_all([(command, place) for place in places])
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]

    alone = told[0].pop("nobody_else")
    assert "worker 0 waited 2 s for worker 1 of 2" in alone
    twice = told[0].pop("the_same_number")
    assert "Two workers have rank 2 of 3" in twice
    assert told[1].pop("the_same_number") == twice

    assert told[0] == told[1]  # the same message on both
    assert sorted(told[0]) == [
        "scripts",
        "strategies_at_init",
        "strategies_at_the_optimizer",
        "world_sizes",
    ]
    strategies = told[0]["strategies_at_init"]
    assert "strategy.nccl_comm_num is 1 on worker 0 and 2 on worker 1" in strategies
    assert "strategy.sync_batch_norm is False on worker 0 and True on worker 1" in strategies
    assert "number of workers is 3 on worker 0 and 2 on worker 1" in told[0]["world_sizes"]
    assert "the script is disagree.py on worker 0 and other.py on worker 1" in told[0]["scripts"]
    later = told[0]["strategies_at_the_optimizer"]
    assert "strategy.fuse_grad_size_in_MB is 32 on worker 0 and 16 on worker 1" in later


def test_under_torchrun(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-port", str(free_ports(1)[0]), SCRIPT, "one", str(tmp_path)]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LIMIT)
    assert run.returncode != 0
    assert "strategy.nccl_comm_num is 1 on worker 0 and 2 on worker 1" in run.stderr
