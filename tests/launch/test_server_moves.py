"""`fleetx ps resize`: a job of fleetrun gets another number of servers while it trains."""

import os
import signal
import subprocess
import sys

import pytest
import torch
import training  # the model that the servers of these tests keep
from test_server_jobs import JOB, helpers, number_in

import warm_start
from fleetx.checkpoint import manifest
from waiting import LIMIT, is_running, wait_until

pytestmark = pytest.mark.slow  # starts a job


def resize(folder, servers):
    command = [sys.executable, "-m", "fleetx", "ps", "resize", str(folder), str(servers)]
    return subprocess.Popen(
        command,
        env=warm_start.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_job_goes_on_with_the_servers_that_it_had(fleetrun, tmp_path):
    """A launcher that is killed after a move leaves a state for so many servers, and no others."""
    for name in ("go", "hold20", "hold26"):
        (tmp_path / name).touch()
    flags = ("--worker_num=2", "--server_state=state", JOB, tmp_path, 30)
    run = fleetrun("--server_num=2", *flags, env=helpers())
    wait_until((tmp_path / "worker0-step20").exists, "step 20")
    moved = resize(tmp_path / "state", 1)
    wait_until((tmp_path / "state/plan.json").exists, "the plan")
    (tmp_path / "hold20").unlink()
    assert moved.communicate(timeout=LIMIT)[0] == "The tables are on 1 server(s) now.\n"
    os.kill(run.pid, signal.SIGKILL)
    run.end()
    (tmp_path / "hold26").unlink()
    left = fleetrun("--server_num=2", *flags, env=helpers())
    assert left.end() == 2
    assert "--server_num gives 2 server(s), but" in left.stderr
    assert fleetrun("--server_num=1", *flags, env=helpers()).end() == 0
    expected = training.train_alone(30, 2)
    for worker in range(2):
        found = manifest.load_state(tmp_path / f"result{worker}")[0]
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value)
    assert not list((tmp_path / "state").iterdir())


def test_a_move_goes_on_after_the_launcher_was_killed(fleetrun, tmp_path):
    """New servers are planned, and gone with their launcher before any table has moved."""
    for name in ("go", "hold4"):
        (tmp_path / name).touch()
    flags = ("--server_num=2", "--worker_num=2", "--server_state=state", JOB, tmp_path, 12)
    run = fleetrun(*flags, env=helpers())
    wait_until((tmp_path / "worker0-step4").exists, "step 4")
    asked = resize(tmp_path / "state", 1)
    plan = tmp_path / "state/plan.json"
    wait_until(plan.exists, "the plan")
    planned = plan.read_bytes()
    os.kill(run.pid, signal.SIGKILL)
    run.end()
    asked.kill()
    asked.communicate()
    assert plan.read_bytes() == planned
    (tmp_path / "hold4").unlink()
    again = fleetrun(*flags, env=helpers())
    assert again.end() == 0, again.stderr
    assert "The tables are on 1 server(s) now." in again.stderr
    expected = training.train_alone(12, 2)
    for worker in range(2):
        found = manifest.load_state(tmp_path / f"result{worker}")[0]
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value)
    assert not list((tmp_path / "state").iterdir())


def test_a_job_gets_another_number_of_servers(fleetrun, tmp_path):
    """The result is that of training without servers, and new servers and workers can be killed."""
    (tmp_path / "hold20").touch()
    flags = ("--server_num=2", "--worker_num=2", "--max_restart=1")
    run = fleetrun(*flags, JOB, tmp_path, 40, env=helpers())
    wait_until((tmp_path / "worker0-step2").exists, "step 2")
    log = tmp_path / "log"
    refused = resize(log, 2)
    assert "the job has 2 server(s) already" in refused.communicate(timeout=LIMIT)[1]
    assert refused.returncode == 1
    old = [number_in(tmp_path / f"PSERVER{index}.pid") for index in range(2)]
    moved = resize(log, 3)
    wait_until(lambda: list(log.glob("serverstate-*/plan.json")), "the plan")
    (tmp_path / "go").touch()
    assert moved.communicate(timeout=LIMIT)[0] == "The tables are on 3 server(s) now.\n"
    wait_until((tmp_path / "worker0-step20").exists, "step 20")
    wait_until(lambda: not any(map(is_running, old)), "the end of the servers before")
    for name in ("PSERVER2", "TRAINER1"):
        process = number_in(tmp_path / f"{name}.pid")
        os.kill(process, signal.SIGKILL)
        wait_until(lambda n=name, p=process: number_in(tmp_path / f"{n}.pid") != p, "a restart")
    (tmp_path / "hold20").unlink()
    assert run.end() == 0, run.stderr
    expected = training.train_alone(40, 2)
    for worker in range(2):
        found = manifest.load_state(tmp_path / f"result{worker}")[0]
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value)
    assert not list(log.glob("serverstate-*"))
