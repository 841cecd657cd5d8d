"""The flags of elastic jobs: what they mean, and what is refused in one sentence."""

import pytest

from fleetx.launch.arguments import parse
from fleetx.launch.fleetrun import main
from fleetx.launch.launch_errors import LaunchError


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
        (["--ips=127.0.0.1,10.255.255.1"], "the flags list 2 machines, which cannot come and go"),
    ],
)
def test_elastic_is_for_collective_jobs(flags, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert main(["--elastic", *flags, "train.py"]) == 2
    error = capsys.readouterr().err
    assert f"--elastic is for collective training, but {reason}" in error


def test_servers_of_an_elastic_job_are_on_one_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    hosts = ["--servers=127.0.0.1:6171,10.255.255.1:6171", "--workers=127.0.0.1"]
    assert main(["--elastic", *hosts, "train.py"]) == 2
    assert "is for parameter servers on one machine, but the job has 2" in capsys.readouterr().err


def test_range_of_machines_is_for_elastic_jobs():
    options = parse(["--elastic", "--nnodes=2:4", "--master=a:1", "train.py"], {})
    assert (options.least_nodes, options.nnodes, options.nodes_text) == (2, 4, "2:4")
    assert parse(["--elastic", "--nnodes=3", "train.py"], {}).least_nodes == 3
    with pytest.raises(LaunchError, match="--nnodes 2:4 is a range of machines .* add --elastic"):
        parse(["--nnodes=2:4", "train.py"], {})


@pytest.mark.parametrize("text", ["4:2", "0:2", "2:", ":2", "2:3:4", "two"])
def test_other_numbers_of_machines_are_refused(text):
    with pytest.raises(LaunchError, match="--nnodes must be a number of at least 1"):
        parse(["--elastic", f"--nnodes={text}", "train.py"], {})


def test_machines_of_an_elastic_job_need_a_meeting_place(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert main(["--elastic", "--nnodes=2:4", "train.py"]) == 2
    assert "--nnodes 2:4 needs --master host:port" in capsys.readouterr().err
