"""The flags of elastic jobs: what they mean, and what is refused in one sentence."""

import pytest

from fleetx.launch.arguments import parse
from fleetx.launch.errors import LaunchError
from fleetx.launch.fleetrun import main


def test_elastic_job_restarts_workers_by_default():
    options = parse(["--elastic", "--elastic_timeout", "2.5", "train.py"], {})
    assert (options.elastic, options.elastic_timeout, options.max_restart) == (True, 2.5, 3)
    assert parse(["train.py"], {}).max_restart == 0
    assert parse(["--elastic", "--max_restart=7", "train.py"], {}).max_restart == 7


def test_timeout_must_be_positive():
    with pytest.raises(LaunchError, match="--elastic_timeout must be more than 0 seconds"):
        parse(["--elastic", "--elastic_timeout", "0", "train.py"], {})


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--nnodes=2:4"], "--nnodes is 2:4"),
        (["--ips=127.0.0.1,10.255.255.1"], "the job has 2 machines"),
        (["--server_num=1", "--worker_num=1"], "parameter servers"),
    ],
)
def test_elastic_is_for_collective_jobs_on_one_machine(
    flags, reason, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert main(["--elastic", *flags, "train.py"]) == 2
    error = capsys.readouterr().err
    assert "--elastic is for collective training on one machine" in error
    assert reason in error
