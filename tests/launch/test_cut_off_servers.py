"""Machines of a server job that are cut off from each other for a while."""

import pytest
import torch
import training  # the model that the servers of these tests keep
from machines import machines
from test_server_jobs import JOB, helpers

from fleetx.checkpoint import manifest
from waiting import wait_until

pytestmark = pytest.mark.slow  # starts a job


def start(fleetrun, network, folder, *flags):
    """Start a job with its workers on the first machine and a server on the second."""
    (folder / "go").touch()
    one, two = network.hosts
    port = network.started_port(3)
    return [
        fleetrun(
            *(f"--servers={two}:{port}", f"--workers={one}", f"--host={host}"),
            *(f"--log_dir=log{i}", *flags, JOB, folder, 12),
            env=helpers(),
            prefix=network.prefix(i),
        )
        for i, host in enumerate(network.hosts)
    ]


def test_a_server_that_was_cut_off_is_trained_with_again(fleetrun, tmp_path):
    (tmp_path / "hold6").touch()
    with machines(2) as network:
        if network.hosts[0].startswith("127."):
            pytest.skip("launchers are cut off by network namespaces only, which need root")
        runs = start(fleetrun, network, tmp_path)
        step = tmp_path / "worker0-step6"
        wait_until(lambda: step.exists() or any(run.has_ended() for run in runs), "step 6")
        assert step.exists(), "the job has ended before step 6"
        network.cut_off(1, runs[1])
        (tmp_path / "hold6").unlink()
        log = tmp_path / "log0/workerlog.0"
        noticed = "Waiting up to 120 s (--server_wait): server 0 at "
        wait_until(lambda: noticed in log.read_text(), "the worker to miss its server")
        for run, other in zip(runs, reversed(network.hosts), strict=True):
            text = f"Machine {other} is silent: waiting for it up to 127 s (--server_wait)."
            wait_until(lambda run=run, text=text: text in run.stderr, "the launchers to miss one")
        network.join_again(1, runs[1])
        assert [run.end() for run in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    found = manifest.load_state(tmp_path / "result0")[0]
    for name, value in training.train_alone(12, 1).items():
        torch.testing.assert_close(found[name], value)
