"""`fleetx ps resize`: a job of fleetrun gets another number of servers while it trains."""

import os
import signal
import subprocess
import sys

import pytest
import torch
import training  # the model that the servers of these tests keep
from machines import machines
from moves import MovingJob, release
from test_server_jobs import JOB, helpers, number_in

import warm_start
from fleetx.checkpoint import manifest
from fleetx.runtime.layout_folder import LayoutFolder
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
    release(tmp_path, 20)
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
    """New servers are planned and gone with their launcher, before any table has moved: workers
    train with the servers that they have until others are up, and do not wait for those."""
    for name in ("go", "hold4", "hold8"):
        (tmp_path / name).touch()
    flags = ("--server_num=2", "--worker_num=2", "--server_state=state", JOB, tmp_path, 14)
    run = fleetrun(*flags, env=helpers())
    wait_until((tmp_path / "worker0-step4").exists, "step 4")
    asked = resize(tmp_path / "state", 1)
    plan = tmp_path / "state/plan.json"
    wait_until(plan.exists, "the plan")
    processes = [int(file.read_text()) for file in tmp_path.glob("*.pid")]
    os.kill(run.pid, signal.SIGKILL)
    run.end()
    asked.kill()
    asked.communicate()
    # A worker that outlives its launcher by a moment must stay before step 4: it would announce
    # the move, and the workers after it would wait for the servers that are held.
    wait_until(lambda: not any(map(is_running, processes)), "the end of all processes")
    assert plan.exists()
    (tmp_path / "hold4").unlink()
    (tmp_path / "hold_successors").touch()
    again = fleetrun(*flags, env=helpers())
    wait_until((tmp_path / "worker0-step8").exists, "step 8 with the servers before")
    assert not plan.exists()
    (tmp_path / "hold_successors").unlink()
    wait_until(plan.exists, "the plan")
    release(tmp_path, 8)
    assert again.end() == 0, again.stderr
    assert "The tables are on 1 server(s) now." in again.stderr
    expected = training.train_alone(14, 2)
    for worker in range(2):
        found = manifest.load_state(tmp_path / f"result{worker}")[0]
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value)
    assert not list((tmp_path / "state").iterdir())


def test_tables_move_between_machines(fleetrun, tmp_path):
    """Two to three to two servers on two machines: the bits of a job whose tables stay."""
    steps = 30
    for name in ("go", "hold5", "hold18", "hold28"):
        (tmp_path / name).touch()
    state = tmp_path / "state"
    with machines(2) as network, MovingJob(tmp_path / "quiet", 2) as quiet:
        quiet.train(steps)
        one, two = network.hosts
        port = network.started_port(3)
        flags = (f"--servers={one}:{port},{two}:{port}", f"--workers={one},{two}")
        runs = [
            fleetrun(
                *(*flags, f"--host={host}", f"--log_dir=log{i}", f"--server_state={state}"),
                *(JOB, tmp_path, steps),
                env=helpers(),
                prefix=network.prefix(i),
            )
            for i, host in enumerate(network.hosts)
        ]
        for step, servers, hosts in ((5, 3, [one, one, two]), (18, 2, [one, two])):
            wait_until((tmp_path / f"worker0-step{step}").exists, f"step {step}")
            moved = resize(state, servers)
            wait_until((state / "plan.json").exists, "the plan")
            release(tmp_path, step)
            said = moved.communicate(timeout=LIMIT)[0]
            assert said == f"The tables are on {servers} server(s) now.\n", runs[0].stderr
            layout = LayoutFolder(state).read()
            assert [endpoint.rpartition(":")[0] for endpoint in layout.endpoints] == hosts
        (tmp_path / "hold28").unlink()
        assert [run.end() for run in runs] == [0, 0], runs[0].stderr + runs[1].stderr
        assert quiet.end() == [0] * 4, quiet.text()
    assert "3 server(s), 1 of them here, start to take over the tables." in runs[1].stderr
    for worker in range(2):
        expected = training.result(tmp_path / "quiet", worker)
        for name, value in training.result(tmp_path, worker).items():
            assert torch.equal(value, expected[name]), name
    assert not list(state.iterdir())


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
