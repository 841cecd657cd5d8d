"""`fleetrun --elastic` with parameter servers: training continues without lost workers."""

import os
import signal

import pytest
import torch
from test_server_jobs import JOB, helpers, number_in

from fleetx.checkpoint import manifest
from waiting import wait_until

pytestmark = pytest.mark.slow  # starts a job


def test_asynchronous_training_goes_on_without_a_worker(fleetrun, tmp_path):
    """It is started again once, and dies again; the other one ends the job."""
    (tmp_path / "hold20").touch()  # so that worker 1 does not finish
    # Long enough for workers that a busy machine starts slowly.
    waits = "--worker_wait=5"
    flags = ("--server_num=1", "--worker_num=2", "--elastic", "--max_restart=1", waits)
    run = fleetrun(*flags, JOB, tmp_path, 30, "async", env=helpers())
    mark = tmp_path / "TRAINER1.pid"
    wait_until((tmp_path / "worker0-step2").exists, "worker 0, which waits for us")
    wait_until(mark.exists, "worker 1")
    first = number_in(mark)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: number_in(mark) != first, "the restart of worker 1")
    os.kill(number_in(mark), signal.SIGKILL)
    wait_until(lambda: "training continues without it" in run.stderr, "the end of worker 1")
    (tmp_path / "hold20").unlink()
    (tmp_path / "go").touch()
    assert run.end() == 0, run.stderr
    assert "Worker 1 has no restarts left (--max_restart 1)" in run.stderr
    assert not (tmp_path / "result1").exists()
    found = manifest.load_state(tmp_path / "result0")[0]
    assert all(bool(torch.isfinite(value).all()) for value in found.values())
