"""Every mistake in the command is one sentence, before anything starts, with exit code 2."""

import re
import socket

import pytest

from fleetx.launch.arguments import parse
from ports import consecutive_ports

SCRIPT = "import pathlib\npathlib.Path('started').touch()\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "No script was named"),
        (["missing.py"], "There is no script 'missing.py' in "),
        (["-m", "no_such_module_anywhere"], "There is no module 'no_such_module_anywhere'"),
        (["folder"], "'folder' is a folder without a __main__.py: name a script in it."),
        (["--gpuss", "0", "train.py"], "Unknown flag --gpuss: did you mean --gpus?"),
        (["--seletected_gpus=0,1", "train.py"], "did you mean --selected_gpus?"),
        (["--nproc_per_nodes=2", "train.py"], "did you mean --nproc_per_node?"),
        (["--nprocs", "2", "train.py"], "Unknown flag --nprocs: "),
        (
            ["--log", "x", "train.py"],
            "--log is ambiguous: write --log_dir or --log_all or --log_overwrite or ",
        ),
        (["-n", "2", "train.py"], "Unknown flag -n: see --help"),
        (["--standalone", "--nnodes=2", "train.py"], "--standalone is for one machine"),
        (
            ["--nnodes=2", "--master=a:1", "--master-port=2", "train.py"],
            "--master and --master_addr both set the rendezvous address",
        ),
        (["--gpus", "a,b", "train.py"], "--gpus must be comma-separated numbers"),
        (["--gpus", "0,0", "train.py"], "--gpus 0,0 names a GPU twice"),
        (["--nproc_per_node", "0", "train.py"], "--nproc_per_node must be 1 or more, not 0."),
        (["--nproc_per_node", "two", "train.py"], "nproc_per_node"),
        (["--ips", "127.0.0.1,127.0.0.1", "train.py"], "127.0.0.1 more than once"),
        (["--ips", "", "train.py"], "--ips is empty"),
        (["--ips", "203.0.113.5", "train.py"], "--ips 203.0.113.5 is not an address of this"),
        (["--ips", "203.0.113.5,203.0.113.6", "train.py"], "None of --ips"),
        (
            ["--ips", "127.0.0.1,127.0.0.2", "train.py"],
            "select one with --host",
        ),
        (
            ["--ips", "127.0.0.1,127.0.0.2", "--host", "127.0.0.3", "train.py"],
            "is not one of --ips",
        ),
        (["--host", "203.0.113.5", "train.py"], "--host 203.0.113.5 is not an address of this"),
        (["--started_port", "70000", "train.py"], "--started_port must be from 1 to 65535"),
        (["--started_port", "65535", "--gpus=0,1", "train.py"], "leaves no room for 2 workers"),
        (["--nnodes", "2", "train.py"], "--nnodes 2 needs --master host:port"),
        (["--nnodes", "2:4", "train.py"], "--nnodes 2:4 is a range of machines"),
        (["--nnodes", "2", "--master", "x", "train.py"], "--master must be host:port"),
        (["--nnodes=2", "--master=127.0.0.1:9", "--rank=2", "train.py"], "--rank must be from 0"),
        (["--nnodes=2", "--master=203.0.113.5:9", "--rank=0", "train.py"], "--rank 0 must run on"),
        (["--servers", "127.0.0.1:8000", "train.py"], "give --worker_num or --workers too"),
        (["--run_mode", "ps", "train.py"], "give --server_num or --servers too"),
        (
            ["--elastic", "--backend", "shm", "train.py"],
            "--backend shm needs a fixed group of workers",
        ),
        (
            ["--elastic_server", "127.0.0.1:2379", "train.py"],
            "is where machines that come and go find each other: add --elastic",
        ),
        (
            ["--elastic", "--elastic_server=a:1", "--master=b:1", "--nnodes=2", "train.py"],
            "--master b:1 and --elastic_server a:1 both set the rendezvous",
        ),
        (["--elastic", "--elastic_server=a:1", "--rank=0", "train.py"], "--rank 0 has no effect"),
        (["--elastic", "--elastic_server=ftp://a:1", "train.py"], "must be host:port of etcd"),
        (
            ["--elastic", "--elastic_server=a:1", "--server_num=1", "--worker_num=1", "train.py"],
            "--elastic_server a:1 is for collective training",
        ),
        (["--elastic", "--np=2", "train.py"], "give the number of machines by --nnodes"),
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
    (tmp_path / "folder").mkdir()
    run = fleetrun(*arguments)
    assert run.end() == 2
    assert run.stderr.startswith("fleetrun: ")
    assert run.stderr.count("\n") == 1
    assert sentence in run.stderr
    assert run.stdout == ""
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--nproc", "2"], {"nproc": 2}),
        (["--nproc=2"], {"nproc": 2}),
        (["--nproc-per-node", "2"], {"nproc": 2}),
        (["--nproc-per", "2", "--gpu", "0"], {"nproc": 2, "gpus": "0"}),
        (["--log-dir=x", "--max-restarts", "1"], {"log_dir": "x", "max_restart": 1}),
        (["--node-rank", "1", "--rdzv_id", "j"], {"rank": 1, "job_id": "j"}),
        (["--nnodes=2", "--rdzv-endpoint=h:1"], {"nnodes": 2, "master": "h:1"}),
        (["--nnodes=2", "--master-addr=h"], {"nnodes": 2, "master": "h:29500"}),
        (["--nnodes=2", "--master_addr=h", "--master_port=7"], {"nnodes": 2, "master": "h:7"}),
        (["--master_port=7", "--standalone"], {"nnodes": 1, "master": None}),
    ],
)
def test_other_spellings(flags, expected):
    script_args = ("--nproc", "3", "--serv", "--log", "x")
    options = parse([*flags, "train.py", *script_args], {})
    assert {name: getattr(options, name) for name in expected} == expected
    assert (options.script, options.script_args) == ("train.py", script_args)
    assert not {"master_addr", "master_port", "standalone"} & set(options.shown)


def test_the_flag_that_is_proposed_works(fleetrun, script):
    script(SCRIPT)
    first = fleetrun("--nproc_per_nodes", "2", "train.py")
    assert first.end() == 2
    (proposed,) = re.findall(r"did you mean (\S+)\?", first.stderr)
    assert fleetrun(proposed, "2", "train.py").end() == 0


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
    assert "sets --max_restart to 'many', which is not a number" in run.stderr


def test_help(fleetrun):
    run = fleetrun("--help")
    assert run.end() == 0
    for flag in ("--gpus", "--nproc_per_node", "--ips", "--master", "--hang_timeout"):
        assert flag in run.stdout
