"""Real processes communicate: two workers under several launchers, and workers with servers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warm_start
from ports import free_ports
from waiting import LIMIT

pytestmark = pytest.mark.slow  # starts jobs or servers

SCRIPT = str(Path(__file__).parent / "workers" / "talk.py")


def environment(**variables: str) -> dict[str, str]:
    return {
        name: value
        for name, value in warm_start.environment().items()
        if not name.startswith(("PADDLE_", "SLURM_", "OMPI_"))
    } | variables


def run_all(commands: list[tuple[list[str], dict[str, str]]]) -> None:
    processes = [
        subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for command, env in commands
    ]
    try:
        for process in processes:
            output, _ = process.communicate(timeout=LIMIT)
            assert process.returncode == 0, output
    finally:
        for process in processes:
            process.kill()
            process.wait()


def check_workers(folder: Path, launcher: str) -> None:
    heard = [json.loads((folder / f"{i}.json").read_text()) for i in range(2)]
    for rank, mine in enumerate(heard):
        assert mine["index"] == rank
        assert mine["launcher"] == launcher
        assert mine["numbers"] == [0.5, 1.5]
        assert mine["arrays"] == [[], [0, 1]]
        assert mine["mixed"] == [0.25, 1]
        assert mine["sum"] == [[1, 2**41]]
        assert mine["max"] == 1
        assert mine["half"] == 1.0
        assert mine["in_place"] == [2.0, 1.0]
        assert "(1,) of process 0, (2,) of process 1" in mine["refused"]
        assert mine["auc"] == 1.0
        assert mine["acc"] == 3 / 8
        assert mine["rmse"] == 2.0
    assert [mine["files"] for mine in heard] == [["a", "b"], ["c"]]


def test_workers_started_by_torchrun(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-port", str(free_ports(1)[0]), SCRIPT, "environment", str(tmp_path)]
    run_all([(command, environment())])
    check_workers(tmp_path, "torch")


def test_workers_with_variables_of_paddlecloud(tmp_path: Path) -> None:
    endpoints = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
    command = [sys.executable, SCRIPT, "environment", str(tmp_path)]
    variables: list[dict[str, str]] = [
        {"PADDLE_TRAINER_ID": str(i), "PADDLE_TRAINER_ENDPOINTS": endpoints} for i in range(2)
    ]
    run_all([(command, environment(**variable)) for variable in variables])
    check_workers(tmp_path, "paddle")


def test_workers_that_the_script_tells(tmp_path: Path) -> None:
    endpoints = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
    base = [sys.executable, SCRIPT, "told", str(tmp_path)]
    run_all([([*base, str(i), endpoints], environment()) for i in range(2)])
    check_workers(tmp_path, "user")


@pytest.mark.parametrize("meeting", ["folder", "address"])
def test_workers_and_servers(meeting: str, tmp_path: Path) -> None:
    servers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    common: dict[str, Any] = {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(servers),
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_WITH_GLOO": "2",
        "SYS_JOB_ID": "talk",
    }
    if meeting == "folder":
        common |= {"PADDLE_GLOO_RENDEZVOUS": "2", "PADDLE_GLOO_FS_PATH": str(tmp_path / "meet")}
    else:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        common |= {"PADDLE_GLOO_RENDEZVOUS": "3", "PADDLE_GLOO_HTTP_ENDPOINT": address}
    command = [sys.executable, SCRIPT, "servers", str(tmp_path)]
    jobs = []
    for i in range(2):
        ip, port = servers[i].split(":")
        server = {"TRAINING_ROLE": "PSERVER", "POD_IP": ip, "PADDLE_PORT": port}
        worker = {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(i)}
        jobs += [(command, environment(**common, **part)) for part in (server, worker)]
    run_all(jobs)
    for role in ("worker", "server"):
        for i in range(2):
            heard = json.loads((tmp_path / f"{role}.{i}.json").read_text())
            assert heard["own"] == [10, 11]
            assert heard["all"] == [0, 1, 100, 101]
            assert heard["sum"] == 4
