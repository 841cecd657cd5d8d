"""fleetrun on one machine: the environment of workers, the terminal output and the logs."""

import json
import re

import pytest

import warm_start
from ports import consecutive_ports

pytestmark = pytest.mark.slow  # starts jobs or servers

REPORT = """
import json, os, sys
names = ("PADDLE_", "FLAGS_", "MASTER_", "TORCHELASTIC_", "GROUP_", "ROLE_", "LOCAL_")
kept = {k: v for k, v in os.environ.items()
        if k.startswith(names) or k in ("RANK", "WORLD_SIZE", "NODE_RANK", "OMP_NUM_THREADS",
        "http_proxy", "https_proxy", "HTTP_PROXY")}
with open("told." + os.environ["RANK"], "w") as file:
    json.dump({"env": kept, "argv": sys.argv, "path": sys.path[0], "main": __name__}, file)
print("line of rank", os.environ["RANK"])
"""

TRAIN = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.full((2, 4), float(dist.get_rank()))).sum().backward()
    optimizer.step()
weights = [torch.empty_like(model.module.weight) for _ in range(dist.get_world_size())]
dist.all_gather(weights, model.module.weight.detach())
dist.barrier()
print("equal", all(torch.equal(w, weights[0]) for w in weights), dist.get_world_size(), flush=True)
os._exit(0)  # on a busy machine torch's teardown of Gloo aborts now and then, under torchrun too
"""


def told(folder, rank):
    return json.loads((folder / f"told.{rank}").read_text())


def test_two_workers_are_told_their_places(fleetrun, script, tmp_path):
    script(REPORT)
    env = {"http_proxy": "http://x:1", "https_proxy": "http://x:1", "HTTP_PROXY": "http://x:1"}
    run = fleetrun("--gpus=0,1", "train.py", "--lr", "0.1", "--", "--gpus=7", "-m", env=env)
    assert run.end() == 0, run.stderr
    both = [told(tmp_path, rank)["env"] for rank in (0, 1)]
    endpoints = both[0]["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert len(set(endpoints)) == 2
    assert len({e["MASTER_PORT"] for e in both}) == 1
    for rank, seen in enumerate(both):
        expected = {
            "PADDLE_TRAINER_ID": rank,
            "PADDLE_TRAINERS_NUM": 2,
            "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
            "PADDLE_RANK_IN_NODE": rank,
            "PADDLE_LOCAL_DEVICE_IDS": rank,
            "PADDLE_WORLD_DEVICE_IDS": "0,1",
            "PADDLE_TRAINING_ROLE": "TRAINER",
            "PADDLE_WITH_GLOO": 0,
            "PADDLE_GLOO_RENDEZVOUS": 3,
            "FLAGS_selected_gpus": rank,
            "RANK": rank,
            "WORLD_SIZE": 2,
            "LOCAL_RANK": rank,
            "LOCAL_WORLD_SIZE": 2,
            "NODE_RANK": 0,
            "GROUP_RANK": 0,
            "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_RESTART_COUNT": 0,
            "OMP_NUM_THREADS": 1,
            "HTTP_PROXY": "http://x:1",
        }
        assert {name: seen.get(name) for name in expected} == {
            name: str(value) for name, value in expected.items()
        }
        assert "http_proxy" not in seen
        assert "https_proxy" not in seen
        assert told(tmp_path, rank)["argv"] == ["train.py", "--lr", "0.1", "--", "--gpus=7", "-m"]
        assert told(tmp_path, rank)["path"] == str(tmp_path)


def test_terminal_shows_flags_environment_and_rank_0(fleetrun, script, tmp_path):
    script(REPORT)
    run = fleetrun("--gpus=0,1", "train.py")
    assert run.end() == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0] == "-----------  Configuration Arguments -----------"
    end = lines.index("-" * 48)
    assert lines[1:end] == sorted(lines[1:end])
    assert {"gpus: 0,1", "heter_worker_num: None", "ips: 127.0.0.1", "log_dir: log"} <= set(lines)
    assert lines[end + 1 :] == ["launch train in CPU mode", "line of rank 0"]
    assert "--gpus 0,1 starts 2 CPU workers." in run.stderr
    assert "Each process computes with one thread" in run.stderr
    head = r"INFO \S+ \S+ \w+\.py:\d+\] Local start 2 processes\. First process distributed"
    assert re.search(head, run.stderr)
    endpoints = told(tmp_path, 0)["env"]["PADDLE_TRAINER_ENDPOINTS"]
    table = [line for line in run.stderr.splitlines() if line.startswith("    |")]
    assert table[0] == f"    |{'Distributed Envs':>40}  {'Value':^45}|"
    assert table[2] == f"    |{'PADDLE_TRAINERS_NUM':>40}  {'2':^45}|"
    assert table[3] == f"    |{'PADDLE_TRAINER_ENDPOINTS':>40}  {endpoints:^45}|"
    assert f"    +{'=' * 87}+" in run.stderr
    log = tmp_path / "log"
    assert (log / "workerlog.0").read_text() == "line of rank 0\n"
    assert (log / "workerlog.1").read_text() == "line of rank 1\n"
    expected = ["PADDLE_TRAINER_ENDPOINTS: ", *endpoints.split(",")]
    assert (log / "endpoints.log").read_text().splitlines() == expected


def test_long_lists_of_endpoints_are_cut_in_the_table(fleetrun, script, tmp_path):
    script(REPORT)
    run = fleetrun("--nproc_per_node=3", "--print_config", "false", "train.py")
    assert run.end() == 0, run.stderr
    endpoints = told(tmp_path, 2)["env"]["PADDLE_TRAINER_ENDPOINTS"]
    assert f"|{'PADDLE_TRAINER_ENDPOINTS':>40}  ... {endpoints[-41:]}|" in run.stderr
    assert run.stdout == "launch train in CPU mode\nline of rank 0\n"


def test_without_flags_one_worker(fleetrun, script, tmp_path):
    script(REPORT)
    run = fleetrun("train.py")
    assert run.end() == 0, run.stderr
    assert told(tmp_path, 0)["env"]["WORLD_SIZE"] == "1"
    assert "OMP_NUM_THREADS" not in told(tmp_path, 0)["env"]
    assert not (tmp_path / "told.1").exists()


def test_log_all_shows_every_rank_with_its_number(fleetrun, script):
    script(REPORT + "print('no end of line', end='')")
    run = fleetrun("--nproc_per_node=2", "--log_all", "train.py")
    assert run.end() == 0, run.stderr
    for rank in (0, 1):
        assert f"[rank {rank}] line of rank {rank}\n" in run.stdout
        assert f"[rank {rank}] no end of line\n" in run.stdout


def test_logs_are_added_to_unless_told_otherwise(fleetrun, script, tmp_path):
    script(REPORT)
    for _ in range(2):
        run = fleetrun("--log_dir", "logs/here", "train.py")
        assert run.end() == 0, run.stderr
        assert run.stdout.count("line of rank 0") == 1
    assert (tmp_path / "logs/here/workerlog.0").read_text() == "line of rank 0\n" * 2
    assert fleetrun("--log_dir", "logs/here", "--log_overwrite=1", "train.py").end() == 0
    assert (tmp_path / "logs/here/workerlog.0").read_text() == "line of rank 0\n"


@pytest.mark.parametrize("hang", [(), ("--hang_timeout", "0")])
def test_modules_start_too(fleetrun, script, tmp_path, hang):
    script(REPORT, name="trainer.py")
    run = fleetrun(*hang, "-m", "trainer", "--lr", "1")
    assert run.end() == 0, run.stderr
    assert told(tmp_path, 0)["argv"][1:] == ["--lr", "1"]
    assert told(tmp_path, 0)["path"] == str(tmp_path)
    assert told(tmp_path, 0)["main"] == "__main__"


def test_other_programs_start_too(fleetrun, script):
    script("#!/bin/sh\necho shell $RANK $1\n", name="run.sh").chmod(0o755)
    run = fleetrun("--nproc_per_node=2", "--log_all", "run.sh", "arg")
    assert run.end() == 0, run.stderr
    assert "[rank 1] shell 1 arg" in run.stdout


def test_rank_0_reads_what_is_typed(fleetrun, script):
    script("import os, sys\nprint(os.environ['RANK'], repr(sys.stdin.read()))")
    run = fleetrun("--nproc_per_node=2", "--log_all", "train.py", typed=b"typed")
    assert run.end() == 0, run.stderr
    assert "[rank 0] 0 'typed'" in run.stdout
    assert "[rank 1] 1 ''" in run.stdout


@pytest.mark.parametrize("hang", [(), ("--hang_timeout", "0")])
def test_a_script_for_torchrun_runs_unchanged(fleetrun, script, hang):
    script(TRAIN)
    run = fleetrun("--nproc_per_node=2", *hang, "train.py", env=warm_start.variables())
    assert run.end() == 0, run.stderr
    assert "equal True 2" in run.stdout


def test_started_port_fixes_the_endpoints(fleetrun, script, tmp_path):
    port = consecutive_ports(2)
    script(REPORT)
    run = fleetrun("--started_port", port, "--selected_gpus=0,1", "train.py")
    assert run.end() == 0, run.stderr
    endpoints = told(tmp_path, 0)["env"]["PADDLE_TRAINER_ENDPOINTS"]
    assert endpoints == f"127.0.0.1:{port},127.0.0.1:{port + 1}"


@pytest.mark.parametrize("module", ["paddle.distributed.launch", "paddle.distributed.fleet.launch"])
def test_the_names_of_paddle(fleetrun, script, tmp_path, module):
    script(REPORT)
    how = {"python": ("-m", module), "env": warm_start.variables()}
    run = fleetrun("--selected_gpus=0,1", "train.py", **how)
    assert run.end() == 0, run.stderr
    assert told(tmp_path, 1)["env"]["PADDLE_TRAINER_ID"] == "1"
    assert fleetrun("--selected_gpuss=0,1", "train.py", **how).end() == 2


def test_old_and_new_flags_of_paddle(fleetrun, script, tmp_path):
    script(REPORT)
    old = ["--cluster_node_ips=127.0.0.1", "--node_ip=127.0.0.1", "--selected_gpus=0,1"]
    run = fleetrun(*old, "--print_config=True", "--log_level=20", "train.py")
    assert run.end() == 0, run.stderr
    assert told(tmp_path, 1)["env"]["WORLD_SIZE"] == "2"
    new = ["--devices=0,1,2", "--nnodes=1", "--rank=0", "--job_id=mine", "--max_restart=1"]
    run = fleetrun(*new, "--run_mode=collective", "train.py")
    assert run.end() == 0, run.stderr
    assert told(tmp_path, 2)["env"]["TORCHELASTIC_RUN_ID"] == "mine"
    assert told(tmp_path, 2)["env"]["TORCHELASTIC_MAX_RESTARTS"] == "1"
