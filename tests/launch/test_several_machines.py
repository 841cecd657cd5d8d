"""fleetrun on several machines: loopback addresses for the rules, namespaces for the network."""

import contextlib
import json
import os
import signal
import socket

import pytest
from machines import machines
from test_hang import LIFE

import warm_start
from ports import consecutive_ports
from waiting import LIMIT, is_running, wait_until

pytestmark = pytest.mark.slow  # starts jobs or servers

HOSTS = ["127.0.0.1", "127.0.0.2"]

WAIT = """
import os, pathlib, sys, time
rank = os.environ["RANK"]
pathlib.Path(f"pid.{rank}").write_text(str(os.getpid()))
pathlib.Path(f"ready.{rank}").touch()
if rank == "3" and "exit" in sys.argv:
    while not all(os.path.exists(f"ready.{other}") for other in range(4)):
        time.sleep(0.01)
    print("last words")
    sys.exit(7)
time.sleep(1000)
"""

REPORT = """
import json, os
with open("told." + os.environ["RANK"], "w") as file:
    json.dump(dict(os.environ), file)
"""

TRAIN = """
import os, pathlib, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
step = 0
while step < 3 or "forever" in sys.argv:
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    step += 1
    if step == 3:
        pathlib.Path("ready." + os.environ["RANK"]).touch()
total = torch.ones(1)
dist.all_reduce(total)
dist.barrier()
print("summed", int(total), flush=True)
os._exit(0)  # on a busy machine torch's teardown of Gloo aborts now and then, under torchrun too
"""


def told(folder, rank):
    return json.loads((folder / f"told.{rank}").read_text())


@pytest.fixture
def pair(fleetrun):
    """Start fleetrun for two machines that are loopback addresses."""
    port = consecutive_ports(2, HOSTS)

    def start(*arguments, flags=("--gpus=0,1",), second_flags=None, only=None):
        runs = []
        for index in (0, 1) if only is None else (only,):
            own = flags if index == 0 or second_flags is None else second_flags
            ips = () if any("--ips" in flag for flag in own) else ("--ips", ",".join(HOSTS))
            common = (*ips, "--host", HOSTS[index], "--started_port", port)
            runs.append(fleetrun(*common, "--log_dir", f"log{index}", *own, *arguments))
        return runs

    start.port = port
    return start


def await_ranks(folder, count=4):
    wait_until(lambda: all((folder / f"ready.{r}").exists() for r in range(count)), "workers")


def test_places_of_four_workers(pair, script, tmp_path):
    script(REPORT)
    runs = pair("train.py")
    assert [run.end() for run in runs] == [0, 0], [run.stderr for run in runs]
    told_once = [run.stderr.count("can join it. In a network that is not private") for run in runs]
    assert told_once == [1, 0], runs[0].stderr
    assert "--job_secret FILE on all machines" in runs[0].stderr
    port = pair.port
    endpoints = ",".join(f"{host}:{port + i}" for host in HOSTS for i in range(2))
    for rank in range(4):
        seen = told(tmp_path, rank)
        expected = {
            "PADDLE_TRAINER_ID": rank,
            "PADDLE_TRAINERS_NUM": 4,
            "PADDLE_TRAINER_ENDPOINTS": endpoints,
            "PADDLE_CURRENT_ENDPOINT": endpoints.split(",")[rank],
            "PADDLE_WORLD_DEVICE_IDS": "0,1,0,1",
            "PADDLE_NNODES": 2,
            "RANK": rank,
            "WORLD_SIZE": 4,
            "LOCAL_RANK": rank % 2,
            "LOCAL_WORLD_SIZE": 2,
            "NODE_RANK": rank // 2,
            "MASTER_ADDR": HOSTS[0],
            "MASTER_PORT": told(tmp_path, 0)["MASTER_PORT"],
            "GLOO_SOCKET_IFNAME": "lo",
        }
        assert {name: seen[name] for name in expected} == {
            name: str(value) for name, value in expected.items()
        }
    socket.create_server((HOSTS[0], port)).close()


def test_everybody_sees_who_is_missing(pair, script):
    script(WAIT)
    three = ["--gpus=0", "--ips=127.0.0.1,127.0.0.2,127.0.0.3"]
    runs = pair("train.py", flags=three)
    waiting = f"Waiting at 127.0.0.1:{pair.port} for 127.0.0.3:{pair.port}."
    wait_until(lambda: all(waiting in run.stderr for run in runs), "both to miss the third")
    for run in reversed(runs):
        os.kill(run.pid, signal.SIGINT)
        assert run.end() == 130


def test_a_failure_on_one_machine_ends_all_and_is_named_on_all(pair, script, tmp_path):
    script(WAIT)
    runs = pair("train.py", "exit")
    assert [run.end() for run in runs] == [7, 7]
    for run in runs:
        assert "Rank 3 on 127.0.0.2 failed first: it ended with exit code 7." in run.stderr
        assert "log1/workerlog.1" in run.stderr
        assert "last words" in run.stderr
    pids = [int(path.read_text()) for path in tmp_path.glob("pid.*")]
    assert [pid for pid in pids if is_running(pid)] == []


@pytest.mark.parametrize(
    ("flags", "second", "words"),
    [
        (["--gpus=0,1"], ["--gpus=0"], "world size 4 on 127.0.0.1 and 2 on 127.0.0.2"),
        (["--gpus=0"], ["--gpus=0", "--ips=127.0.0.1,127.0.0.2,127.0.0.3"], "machines 2 on"),
        (["--gpus=0", "--ips=127.0.0.1,127.0.0.2,127.0.0.3"], ["--gpus=0"], "machines 3 on"),
        (["--gpus=0"], ["--gpus=0", "--job_id=x"], "job (--job_id) 'default' on 127.0.0.1"),
        (["--gpus=0"], ["--gpus=0", "--max_restart=1"], "--max_restart 0 on 127.0.0.1"),
    ],
)
def test_different_jobs_are_told_so_on_both_sides(pair, script, tmp_path, flags, second, words):
    script(WAIT)
    runs = pair("train.py", flags=flags, second_flags=second)
    assert [run.end() for run in runs] == [1, 1]
    for run in runs:
        assert "The machines were started for different jobs: " in run.stderr
        assert words in run.stderr
    assert not list(tmp_path.glob("ready.*"))


def test_different_scripts_are_told_so(pair, script, tmp_path):
    (tmp_path / "old").mkdir()
    script(WAIT + "# older\n", name="old/train.py")
    script(WAIT)
    runs = pair(flags=["train.py"], second_flags=["old/train.py"])
    assert [run.end() for run in runs] == [1, 1]
    assert all("content of the script (checksum)" in run.stderr for run in runs)


def test_a_machine_that_never_comes_is_named(pair, script, tmp_path):
    script(WAIT)
    (run,) = pair("train.py", flags=["--gpus=0,1", "--rdzv_timeout=2"], only=0)
    assert run.end() == 1
    port = pair.port
    missing = f"127.0.0.2:{port},127.0.0.2:{port + 1}"
    assert f"Waiting at 127.0.0.1:{port} for {missing}." in run.stderr
    assert f"After 2 s (--rdzv_timeout) these machines did not join: {missing}." in run.stderr
    for reason in ("wrong ip", "firewall", "proxy", "another number of machines"):
        assert reason in run.stderr
    assert not list(tmp_path.glob("ready.*"))


def test_a_first_machine_that_never_comes_is_named(fleetrun, script):
    script(WAIT)
    port = consecutive_ports(2, HOSTS)
    flags = ["--ips", ",".join(HOSTS), "--host", HOSTS[1], "--started_port", port]
    run = fleetrun(*flags, "--rdzv_timeout=2", "train.py")
    assert run.end() == 1
    assert f"The first machine was not reached at 127.0.0.1:{port} in 2 s" in run.stderr
    assert "Connection refused" in run.stderr


def test_strangers_at_the_meeting_do_not_disturb(pair, script):
    script(REPORT)
    (first,) = pair("train.py", only=0)
    meeting = HOSTS[0], pair.port

    def reachable():
        try:
            return socket.create_connection(meeting, LIMIT)
        except ConnectionError:
            return None

    with wait_until(reachable, "the meeting") as browser:
        browser.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with socket.create_connection(meeting, LIMIT) as other:
            other.sendall(b'{"type": "join"}\n')
            for hostile in (b"[" * 200_000, b"FXL3" + bytes(16) + b"\xff" * 200_000):
                attack = socket.create_connection(meeting, LIMIT)
                with attack, contextlib.suppress(ConnectionError):  # it may be closed by then
                    attack.sendall(hostile)
            (again,) = pair("train.py", only=0)
            assert again.end() == 2
            assert "is in use" in again.stderr
            (second,) = pair("train.py", only=1)
            assert [first.end(), second.end()] == [0, 0], first.stderr


@pytest.mark.parametrize("who", [0, 1])
def test_ctrl_c_on_one_machine_ends_all(pair, script, tmp_path, who):
    script(WAIT)
    runs = pair("train.py")
    await_ranks(tmp_path)
    os.kill(runs[who].pid, signal.SIGINT)
    assert [run.end() for run in runs] == [130, 130]
    for run in runs:
        assert f"Stopped by SIGINT, which fleetrun on {HOSTS[who]} received." in run.stderr


def test_ctrl_c_while_waiting(pair, script):
    script(WAIT)
    (run,) = pair("train.py", only=0)
    wait_until(lambda: "Waiting at" in run.stderr, "the meeting")
    os.kill(run.pid, signal.SIGINT)
    assert run.end() == 130


@pytest.mark.parametrize("who", [0, 1])
def test_a_killed_launcher_is_noticed_by_the_other(pair, script, tmp_path, who):
    script(WAIT)
    runs = pair("train.py")
    await_ranks(tmp_path)
    os.kill(runs[who].pid, signal.SIGKILL)
    assert runs[1 - who].end() != 0
    assert HOSTS[who] in runs[1 - who].stderr.splitlines()[-1]
    pids = [int(path.read_text()) for path in tmp_path.glob("pid.*")]
    wait_until(lambda: not any(map(is_running, pids)), "all workers to end")


def test_restarts_happen_on_all_machines(pair, script):
    script(
        "import os, pathlib, sys, time\n"
        "tries, rank = os.environ['TORCHELASTIC_RESTART_COUNT'], os.environ['RANK']\n"
        "print('try', tries, rank, flush=True)\n"
        "pathlib.Path(f'printed.{tries}.{rank}').touch()\n"
        # A failure ends the other worker, which may not have printed its line by then.
        "while rank == '1' and not os.path.exists(f'printed.{tries}.0'): time.sleep(0.01)\n"
        "sys.exit(5 if tries == '0' and rank == '1' else 0)\n"
    )
    runs = pair("train.py", flags=["--gpus=0", "--max_restart=1"])
    assert [run.end() for run in runs] == [0, 0], [run.stderr for run in runs]
    for rank, run in enumerate(runs):
        assert f"try 0 {rank}" in run.stdout
        assert f"try 1 {rank}" in run.stdout
        assert "restart 1 of 1" in run.stderr


def test_a_hang_is_shown_with_the_stacks_of_all_machines(pair, script):
    script(LIFE + "\n\ndef stuck():\n    time.sleep(1000)\n\n\nhangs_in('stuck')\nstuck()\n")
    runs = pair("train.py", flags=["--gpus=0", "--hang_timeout=10"])
    assert [run.end() for run in runs] == [1, 1]
    assert runs[0].stderr.count(", in stuck") == 2
    assert "rank 1: " in runs[0].stderr
    assert "rank 1: " in runs[1].stderr


def test_master_gives_numbers_and_free_ports(fleetrun, script, tmp_path):
    script(REPORT)
    master = f"127.0.0.1:{consecutive_ports(1)}"
    runs = [
        fleetrun(*flags, "--nnodes=3", "--master", master, "--log_dir", f"log{i}", "train.py")
        for i, flags in enumerate([(), (), ("--rank=1",)])
    ]
    assert [run.end() for run in runs] == [0, 0, 0], [run.stderr for run in runs]
    assert {told(tmp_path, rank)["NODE_RANK"] for rank in range(3)} == {"0", "1", "2"}
    endpoints = told(tmp_path, 0)["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert len(set(endpoints)) == 3


def test_the_same_number_twice_is_refused(fleetrun, script):
    script(REPORT)
    flags = ["--nnodes=3", "--master", f"127.0.0.1:{consecutive_ports(1)}"]
    first = fleetrun(*flags, "--rank=0", "train.py")
    others = [fleetrun(*flags, "--rank=1", "train.py") for _ in range(2)]
    wait_until(lambda: any(run.process.poll() is not None for run in others), "a refusal")
    (refused,) = [run for run in others if run.process.poll() is not None]
    assert refused.end() == 1
    assert "Machine 1 (127.0.0.1) has already joined." in refused.stderr
    assert fleetrun(*flags, "--rank=2", "train.py").end() == 0
    assert first.end() == 0


class TestNetwork:
    """Machines with a network between them."""

    def start(self, fleetrun, net, *arguments):
        port = net.started_port(1)
        loopback = net.hosts[0].startswith("127.")
        return [
            fleetrun(
                *("--ips", net.ips, "--started_port", port, "--log_dir", f"log{i}"),
                *(("--host", host) if loopback else ()),
                *arguments,
                prefix=net.prefix(i),
                # Machines on loopback are cut off by stopping the launcher's own children.
                env={} if loopback else warm_start.variables(),
            )
            for i, host in enumerate(net.hosts)
        ]

    @pytest.mark.parametrize("count", [2, 4])
    def test_training_across_machines(self, fleetrun, script, count):
        script(TRAIN)
        with machines(count) as net:
            runs = self.start(fleetrun, net, "train.py")
            assert [run.end() for run in runs] == [0] * count, [run.stderr for run in runs]
            assert all(f"summed {count}" in run.stdout for run in runs)

    def test_a_machine_that_is_cut_off_is_named(self, fleetrun, script, tmp_path):
        script(TRAIN)
        with machines(2) as net:
            runs = self.start(fleetrun, net, "train.py", "forever")
            await_ranks(tmp_path, count=2)
            net.cut_off(1, runs[1])
            assert runs[0].end() == 1
            lost = f"Machine {net.hosts[1]} (rank 1) was lost: silent for "
            assert lost in runs[0].stderr
            net.join_again(1, runs[1])
            assert runs[1].end() == 1
            assert " was lost: " in runs[1].stderr

    def test_all_others_hear_which_of_four_was_cut_off(self, fleetrun, script, tmp_path):
        script(WAIT)
        with machines(4) as net:
            runs = self.start(fleetrun, net, "train.py")
            await_ranks(tmp_path)
            net.cut_off(2, runs[2])
            for index in (0, 1, 3):
                assert runs[index].end() == 1
                assert f"Machine {net.hosts[2]} (rank 2) was lost: " in runs[index].stderr
            net.join_again(2, runs[2])
            assert runs[2].end() == 1


def test_only_machines_with_the_secret_of_the_job_join(pair, script, tmp_path):
    script(REPORT)
    for name in "ab":
        (tmp_path / name).write_text(name * 32)
    own, other = (("--gpus=0", f"--job_secret={name}") for name in "ab")
    runs = pair("train.py", flags=own)
    assert [run.end() for run in runs] == [0, 0], runs[0].stderr
    assert "has no secret" not in runs[0].stderr + runs[1].stderr
    (tmp_path / "told.0").unlink()
    (first,) = pair("train.py", flags=own, only=0)
    wait_until(lambda: "Waiting at" in first.stderr, "the first machine")
    (second,) = pair("train.py", flags=(*other, "--rdzv_timeout=2"), only=1)
    assert second.end() == 1
    assert "another --job_secret" in second.stderr
    assert first.process.poll() is None, first.stderr  # it waits for a machine with the secret
    assert not (tmp_path / "told.0").exists()


def test_a_short_or_missing_secret_is_refused(fleetrun, script, tmp_path):
    script(REPORT)
    (tmp_path / "short").write_text("abc")
    for name, problem in (("short", "has 3 bytes"), ("none", "cannot be read")):
        run = fleetrun(
            "--ips",
            ",".join(HOSTS),
            "--host",
            HOSTS[0],
            "--job_secret",
            tmp_path / name,
            "train.py",
        )
        assert run.end() != 0
        assert problem in run.stderr
