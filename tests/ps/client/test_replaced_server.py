"""A server whose machine is lost continues at another address, from its snapshot and log."""

import subprocess
import sys

import pytest
import torch
from moves import MovingJob
from training import result, train_alone

import warm_start
from ports import free_endpoints
from waiting import LIMIT

pytestmark = pytest.mark.slow  # starts servers and workers

STEPS = 20


def replace(job, index, endpoint):
    command = [sys.executable, "-m", "fleetx", "ps", "replace", str(job.files.path), str(index)]
    return subprocess.Popen(
        [*command, endpoint, "--server_insecure"],
        env=warm_start.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_workers_find_a_server_at_another_address(tmp_path):
    """The result is the same; while the lost server runs, nobody can take its place."""
    with MovingJob(tmp_path / "job", 2) as job:
        job.hold(5)
        job.train(STEPS)
        job.wait_for_step(5)
        (elsewhere,) = free_endpoints(1)
        refused = replace(job, 1, elsewhere)
        assert "is in use by another parameter server" in refused.communicate(timeout=LIMIT)[1]
        assert refused.returncode == 1
        lost = job.servers[0].pop()
        lost.kill()
        replacement = replace(job, 1, elsewhere)
        job.release(5)
        try:
            assert job.end() == [0, 0, 0], job.text()
            output = replacement.communicate(timeout=LIMIT)
        finally:
            replacement.kill()
            replacement.communicate()
        assert replacement.returncode == 0, output
        assert output[0] == f"Server 1 is at {elsewhere} now.\n"
        assert f"is at {elsewhere} now" in job.text()
    expected = train_alone(STEPS, 2)
    for worker in range(2):
        found = result(tmp_path / "job", worker)
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value)
