"""Every mistake in the command is one sentence, before anything starts, with exit code 2."""

import socket

import pytest

from ports import consecutive_ports

SCRIPT = "import pathlib\npathlib.Path('started').touch()\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "No script was named"),
        (["missing.py"], "There is no script 'missing.py' in "),
        (["-m", "no_such_module_anywhere"], "There is no module 'no_such_module_anywhere'"),
        (["--gpu", "0", "train.py"], "There is no flag --gpu: did you mean --gpus."),
        (["--seletected_gpus=0,1", "train.py"], "did you mean --selected_gpus."),
        (["--gpus", "a,b", "train.py"], "--gpus must be numbers with commas between"),
        (["--gpus", "0,0", "train.py"], "--gpus 0,0 names a GPU twice"),
        (["--nproc_per_node", "0", "train.py"], "--nproc_per_node must be 1 or more, not 0."),
        (["--nproc_per_node", "two", "train.py"], "nproc_per_node"),
        (["--ips", "127.0.0.1,127.0.0.1", "train.py"], "127.0.0.1 more than once"),
        (["--ips", "", "train.py"], "--ips is empty"),
        (["--ips", "203.0.113.5", "train.py"], "--ips 203.0.113.5 is not an address of this"),
        (["--ips", "203.0.113.5,203.0.113.6", "train.py"], "None of --ips"),
        (
            ["--ips", "127.0.0.1,127.0.0.2", "train.py"],
            "say which one this fleetrun is with --host",
        ),
        (
            ["--ips", "127.0.0.1,127.0.0.2", "--host", "127.0.0.3", "train.py"],
            "is not one of --ips",
        ),
        (["--host", "203.0.113.5", "train.py"], "--host 203.0.113.5 is not an address of this"),
        (["--started_port", "70000", "train.py"], "--started_port must be from 1 to 65535"),
        (["--started_port", "65535", "--gpus=0,1", "train.py"], "leaves no room for 2 workers"),
        (["--nnodes", "2", "train.py"], "--nnodes 2 needs --master host:port"),
        (["--nnodes", "2:4", "train.py"], "--nnodes must be one number"),
        (["--nnodes", "2", "--master", "x", "train.py"], "--master must be host:port"),
        (["--nnodes=2", "--master=127.0.0.1:9", "--rank=2", "train.py"], "--rank must be from 0"),
        (["--nnodes=2", "--master=203.0.113.5:9", "--rank=0", "train.py"], "--rank 0 must run on"),
        (["--servers", "127.0.0.1:8000", "train.py"], "give --worker_num or --workers too"),
        (["--run_mode", "ps", "train.py"], "give --server_num or --servers too"),
        (["--elastic_server", "127.0.0.1:2379", "train.py"], "--elastic_server asks for a job"),
        (["--use_paddlecloud", "train.py"], "--use_paddlecloud needs the environment variables"),
        (["--rdzv_timeout", "0", "train.py"], "--rdzv_timeout must be more than 0 seconds"),
        (["--hang_timeout", "-1", "train.py"], "--hang_timeout must be more than 0 seconds"),
        (["--max_restart", "-1", "train.py"], "--max_restart must be 0 or more, not -1."),
        (["--log_level", "loud", "train.py"], "--log_level loud is unknown"),
        (["--print_config", "maybe", "train.py"], "'maybe' is neither true nor false"),
        (["--log_dir", "train.py", "train.py"], "--log_dir 'train.py' cannot be written to"),
    ],
)
def test_one_sentence(fleetrun, script, tmp_path, arguments, sentence):
    script(SCRIPT)
    run = fleetrun(*arguments)
    assert run.end() == 2
    assert run.stderr.startswith("fleetrun: ")
    assert run.stderr.count("\n") == 1
    assert sentence in run.stderr
    assert run.stdout == ""
    assert not (tmp_path / "started").exists()


def test_a_port_in_use(fleetrun, script, tmp_path):
    script(SCRIPT)
    port = consecutive_ports(2)
    with socket.create_server(("127.0.0.1", port + 1)):
        run = fleetrun("--started_port", port, "--gpus=0,1", "train.py")
        assert run.end() == 2
    assert f"Port {port + 1} of 127.0.0.1 is in use" in run.stderr
    assert not (tmp_path / "started").exists()


def test_numbers_in_the_environment_are_checked(fleetrun, script):
    script(SCRIPT)
    run = fleetrun("train.py", env={"PADDLE_NPROC_PER_NODE": "2", "PADDLE_MAX_RESTART": "many"})
    assert run.end() == 2
    assert "sets --max_restart to 'many', which is no number" in run.stderr


def test_help(fleetrun):
    run = fleetrun("--help")
    assert run.end() == 0
    for flag in ("--gpus", "--nproc_per_node", "--ips", "--master", "--hang_timeout"):
        assert flag in run.stdout
