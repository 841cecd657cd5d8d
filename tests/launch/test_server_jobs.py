"""Jobs with parameter servers: both roles are started, watched, restarted and ended."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import training  # the model that the servers of these tests keep
from launching import ROOT, clean_environment
from machines import machines

import warm_start
from fleetx.checkpoint import manifest
from ports import consecutive_ports
from waiting import LIMIT, is_running, wait_until

pytestmark = pytest.mark.slow  # starts jobs or servers

JOB = Path(__file__).with_name("server_job.py")


def helpers() -> dict[str, str]:
    """Return the variables of a job that starts warm and finds the modules of tests/ps."""
    warm = warm_start.variables()
    return {**warm, "PYTHONPATH": f"{warm['PYTHONPATH']}:{ROOT / 'tests/ps'}"}


TWO = ("--server_num=2", "--worker_num=2")

# Both roles wait for ever, except a worker that does what the first argument says.
ROLES = """
import os, pathlib, signal, subprocess, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
role, number = os.environ["TRAINING_ROLE"], os.environ.get("PADDLE_TRAINER_ID", "")
number = number if role == "TRAINER" else os.environ["PADDLE_PORT"]
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
pathlib.Path(f"{role}.{number}").write_text(f"{os.getpid()} {helper.pid}")
# Nobody ends before all have left their numbers.
servers = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].count(",") + 1
for kind, count in ("TRAINER", int(os.environ["PADDLE_TRAINERS_NUM"])), ("PSERVER", servers):
    while len(list(pathlib.Path().glob(f"{kind}.*"))) < count:
        time.sleep(0.01)
if role == "TRAINER":
    if sys.argv[1] == "end":
        sys.exit()
    if sys.argv[1] == "fail" and number == "1":
        raise RuntimeError("this went wrong")
    if sys.argv[1] == "once" and number == "1" and not os.path.exists("failed"):
        pathlib.Path("failed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "once":
        sys.exit()
elif sys.argv[1] == "broken server":
    raise OSError("no room for tables")
while True:
    signal.pause()
"""


def pids(folder: Path) -> list[int]:
    files = [*folder.glob("TRAINER.*"), *folder.glob("PSERVER.*")]
    return [int(pid) for file in files for pid in file.read_text().split()]


def number_in(file: Path) -> int:
    return int(file.read_text())


@pytest.mark.parametrize("how", ["end", "deaf"])
def test_servers_end_with_the_workers(fleetrun, script, tmp_path, how):
    """Including servers that were not told to stop, and servers that ignore SIGTERM."""
    script(ROLES)
    run = fleetrun(*TWO, "train.py", "end", how)
    assert run.end() == 0, run.stderr
    assert "all workers exit, going to finish parameter server" in run.stderr
    assert len(pids(tmp_path)) == 8
    assert [pid for pid in pids(tmp_path) if is_running(pid)] == []
    assert {path.name for path in (tmp_path / "log").iterdir()} == {
        *("serverlog.0", "serverlog.1", "workerlog.0", "workerlog.1", "endpoints.log")
    }


@pytest.mark.parametrize(
    ("how", "words", "error"),
    [
        ("fail", "Worker 1 on 127.0.0.1 failed first", "RuntimeError: this went wrong"),
        ("broken server", "on 127.0.0.1 failed first", "OSError: no room for tables"),
    ],
)
def test_failures_of_both_roles_are_told(fleetrun, script, tmp_path, how, words, error):
    script(ROLES)
    run = fleetrun(*TWO, "train.py", how)
    assert run.end() == 1
    assert f"{words}: it ended with exit code 1." in run.stderr
    assert error in run.stderr
    assert [pid for pid in pids(tmp_path) if is_running(pid)] == []


def test_ctrl_c_leaves_nothing(fleetrun, script, tmp_path):
    script(ROLES)
    run = fleetrun(*TWO, "train.py", "wait")
    wait_until(lambda: len(pids(tmp_path)) == 8, "all processes")
    os.kill(run.pid, signal.SIGINT)
    assert run.end() == 130
    assert [pid for pid in pids(tmp_path) if is_running(pid)] == []


def test_restarts_are_counted(fleetrun, script, tmp_path):
    """A worker comes back if it may; a server that is killed too often ends the job."""
    script(ROLES)
    run = fleetrun(*TWO, "--max_restart=1", "train.py", "once")
    assert run.end() == 0, run.stderr
    assert "Worker 1 on 127.0.0.1: killed by SIGKILL" in run.stderr
    assert "It is restarted (restart 1 of 1)." in run.stderr
    for file in tmp_path.glob("*.*[0-9]"):
        if file.name.startswith(("TRAINER", "PSERVER")):
            file.unlink()

    run = fleetrun("--server_num=1", "--worker_num=1", "--max_server_restart=1", "train.py", "wait")
    for _ in range(2):
        wait_until(lambda: len(pids(tmp_path)) == 4, "both processes")
        (server,) = tmp_path.glob("PSERVER.*")
        pid = int(server.read_text().split()[0])
        server.unlink()
        os.kill(pid, signal.SIGKILL)
    assert run.end() == 137
    assert run.stderr.count("It is restarted") == 1
    assert "Server 0 on 127.0.0.1 failed first: killed by SIGKILL" in run.stderr


def test_a_killed_server_comes_back_with_its_state(fleetrun, tmp_path):
    """Training goes on and ends with the bits of the undisturbed run; SIGTERM kills as well."""
    run = fleetrun(*TWO, JOB, tmp_path, 5, env=helpers())
    wait_until(lambda: (tmp_path / "worker0-step2").exists(), "step 2")
    before = [number_in(tmp_path / f"PSERVER{i}.pid") for i in range(2)]
    os.kill(before[0], signal.SIGKILL)
    os.kill(before[1], signal.SIGTERM)
    (tmp_path / "go").touch()
    assert run.end() == 0, run.stderr
    assert run.stderr.count("It is restarted (restart 1 of 3).") == 2
    after = [number_in(tmp_path / f"PSERVER{i}.pid") for i in range(2)]
    assert set(before).isdisjoint(after)
    assert [pid for pid in after if is_running(pid)] == []
    wanted = training.train_alone(5, 2)
    found = manifest.load_state(tmp_path / "result0")[0]
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-12)
    log = (tmp_path / "log/serverlog.0").read_text()
    assert log.startswith("keys kept")
    assert "state restored" in log
    assert list((tmp_path / "log").glob("serverstate-*")) == []


def test_a_restarted_worker_joins_again(fleetrun, tmp_path):
    run = fleetrun(*TWO, "--max_restart=1", JOB, tmp_path, 4, "async", env=helpers())
    wait_until(lambda: (tmp_path / "worker0-step2").exists(), "step 2")
    os.kill(number_in(tmp_path / "TRAINER0.pid"), signal.SIGKILL)
    (tmp_path / "go").touch()
    assert run.end() == 0, run.stderr
    assert (tmp_path / "result0").exists()
    assert (tmp_path / "result1").exists()


TALKING = """
import os, signal, sys
import numpy as np
from fleetx import fleet

fleet.init()
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
    sys.exit()
fleet.init_worker()
me = fleet.worker_index()
total = lambda value: float(fleet.util.all_reduce(np.array(value), "sum"))
if "FLEETX_RESTART_COUNT" not in os.environ:
    print("first", total(me + 1.0), flush=True)
    if me == 1:
        os.kill(os.getpid(), signal.SIGKILL)
elif "anew" in sys.argv:
    fleet.util.barrier()
print("second", total(me + 10.0), flush=True)
print("third", fleet.util.all_gather(me + 5), flush=True)
fleet.stop_worker()
"""


def _exchanged(text: str) -> list[str]:
    """Return what the script has printed; the client may say in between whom it waits for."""
    return [line for line in text.splitlines() if line.startswith(("first", "second", "third"))]


def test_a_restarted_worker_exchanges_with_the_others(fleetrun, script, tmp_path):
    script(TALKING)
    run = fleetrun(*TWO, "--max_restart=1", "train.py", env=warm_start.variables())
    assert run.end() == 0, run.stderr
    assert _exchanged(run.stdout) == ["first 3.0", "second 21.0", "third [5, 6]"]
    log = (tmp_path / "log/workerlog.1").read_text()
    assert _exchanged(log)[-2:] == ["second 21.0", "third [5, 6]"]

    run = fleetrun(*TWO, "--max_restart=1", "train.py", "anew", env=warm_start.variables())
    assert run.end() == 1
    assert "all workers must make the same exchanges in the same order" in run.stderr


def test_state_outlives_a_failed_job(fleetrun, tmp_path):
    """The next job with the same --server_state goes on where the failed one was."""
    flags = ("--server_num=1", "--worker_num=1", "--server_state=state", JOB, tmp_path, 4)
    run = fleetrun(*flags, env=helpers())
    wait_until(lambda: (tmp_path / "worker0-step2").exists(), "step 2")
    os.kill(number_in(tmp_path / "TRAINER0.pid"), signal.SIGKILL)
    assert run.end() == 137
    assert "Worker 0 on 127.0.0.1 failed first" in run.stderr
    (tmp_path / "go").touch()
    (tmp_path / "worker0-step0").unlink()
    assert fleetrun(*flags, env=helpers()).end() == 0
    assert not (tmp_path / "worker0-step0").exists()
    found, wanted = manifest.load_state(tmp_path / "result0")[0], training.train_alone(4, 1)
    torch.testing.assert_close(found["w"], wanted["w"], rtol=1e-10, atol=1e-12)
    assert list((tmp_path / "state").iterdir()) == []


def test_several_machines(fleetrun, tmp_path):
    """A machine of servers only, one of both roles: keys are handed out, all end together."""
    with machines(2) as network:
        one, two = network.hosts
        port = network.started_port(2)
        flags = (
            f"--servers={one}:{port},{two}:{port}",
            f"--workers={two},{two}",
            "--max_server_restart=0",
        )
        runs = [
            fleetrun(
                *(*flags, f"--host={host}", f"--log_dir=log{i}", JOB, tmp_path, 4),
                env=helpers(),
                prefix=network.prefix(i),
            )
            for i, host in enumerate(network.hosts)
        ]
        (tmp_path / "go").touch()
        assert [run.end() for run in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    wanted = training.train_alone(4, 2)
    found = manifest.load_state(tmp_path / "result1")[0]
    torch.testing.assert_close(found["w"], wanted["w"], rtol=1e-10, atol=1e-12)
    assert (tmp_path / "log0/serverlog.0").read_text().startswith("keys in memory")
    assert (tmp_path / "log1/workerlog.1").read_text().startswith("keys in memory")
    assert not (tmp_path / "log0/workerlog.0").exists()


def test_a_failure_ends_all_machines(fleetrun, script, tmp_path):
    script(ROLES)
    hosts = ("127.0.0.1", "127.0.0.2")
    port = consecutive_ports(2, hosts)
    flags = (f"--servers=127.0.0.1:{port},127.0.0.2:{port + 1}", "--workers=127.0.0.2,127.0.0.2")
    runs = [
        fleetrun(*flags, f"--host={host}", f"--log_dir=log.{host}", "train.py", "fail")
        for host in hosts
    ]
    for run in runs:
        assert run.end() == 1
        assert "Worker 1 on 127.0.0.2 failed first" in run.stderr
        assert "RuntimeError: this went wrong" in run.stderr
    assert [pid for pid in pids(tmp_path) if is_running(pid)] == []


def test_environment_of_both_roles(fleetrun, script, tmp_path):
    """As Fleet's launchers set it, for 1.x and 2.x role makers."""
    script(
        "import json, os, sys\n"
        "role = os.environ['TRAINING_ROLE']\n"
        "number = os.environ.get('PADDLE_TRAINER_ID', os.environ.get('PADDLE_PORT'))\n"
        "json.dump(dict(os.environ), open(f'{role}.{number}.json', 'w'))\n"
        "from fleetx.runtime.role_environment import detect_server_job\n"
        "job = detect_server_job()\n"
        "print(job.role, job.index, job.worker_num, len(job.server_endpoints))\n"
    )
    port = consecutive_ports(4)
    memory = ("--server_memory=1.5G", "--server_spill=cold")
    run = fleetrun(*TWO, *memory, f"--start_port={port}", "--max_server_restart=0", "train.py")
    assert run.end() == 0, run.stderr
    found = {p.name: json.loads(p.read_text()) for p in tmp_path.glob("*.json")}
    assert set(found) == {
        *(f"PSERVER.{port}.json", f"PSERVER.{port + 1}.json", "TRAINER.0.json", "TRAINER.1.json")
    }
    servers, workers = (
        ",".join(f"127.0.0.1:{port + i}" for i in numbers) for numbers in ((0, 1), (2, 3))
    )
    for environment in found.values():
        assert environment["PADDLE_PSERVERS_IP_PORT_LIST"] == servers
        assert environment["PADDLE_TRAINER_ENDPOINTS"] == workers
        assert environment["PADDLE_TRAINERS_NUM"] == "2"
        assert environment["PADDLE_HETER_TRAINER_IP_PORT_LIST"] == ""
        assert environment["PADDLE_GLOO_RENDEZVOUS"] == "3"
        assert environment["PADDLE_GLOO_HTTP_ENDPOINT"].startswith("127.0.0.1:")
        assert "FLEETX_SERVER_STATE" not in environment
    server = found[f"PSERVER.{port}.json"]
    assert server["POD_IP"] == "127.0.0.1"
    assert server["FLEETX_SERVER_MEMORY"] == str(3 << 29)
    assert server["FLEETX_SERVER_SPILL"] == "cold"
    assert found["TRAINER.1.json"]["FLAGS_selected_gpus"] == "0"
    assert found["TRAINER.1.json"]["WORLD_SIZE"] == "2"
    assert (tmp_path / "log/serverlog.1").read_text() == "PSERVER 1 2 2\n"
    assert (tmp_path / "log/workerlog.1").read_text() == "TRAINER 1 2 2\n"


def test_launch_ps(tmp_path):
    """The launcher of Paddle 1.x for server jobs: its flags, files and defaults."""
    (tmp_path / "train.py").write_text("import os; print(os.environ['TRAINING_ROLE'])\n")
    run = subprocess.run(
        [
            *(sys.executable, "-m", "paddle.distributed.launch_ps"),
            *("--start_port", str(consecutive_ports(2))),
            *("--worker_num", "1", "--server_num", "1", "train.py"),
        ],
        cwd=tmp_path,
        env=clean_environment(**warm_start.variables()),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "logs/serverlog.0").read_text() == "PSERVER\n"
    assert (tmp_path / "logs/workerlog.0").read_text() == "TRAINER\n"
