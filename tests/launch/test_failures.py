"""A worker dies, Ctrl-C is pressed, a launcher is killed: no process stays, ends are reported."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launching import clean_environment

import warm_start
from ports import are_free
from waiting import LIMIT, is_running, wait_until

pytestmark = pytest.mark.slow  # starts jobs or servers

# Rank 0 and its helpers wait for ever; the last rank does what the arguments say.
CRASH = """
import os, signal, subprocess, sys, time
rank = int(os.environ["RANK"])
# A child in the same group, and a grandchild that has left it: both must go.
child = subprocess.Popen(["sleep", "1000"])
leave = "import os, time; os.setsid(); os.write(1, b'%d' % os.getpid()); time.sleep(1000)"
middle = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
reader, writer = os.pipe()
subprocess.run([sys.executable, "-c", middle, leave], stdout=writer, check=True)
daemon = int(os.read(reader, 100))
with open(f"pids.{rank}.tmp", "w") as file:
    file.write(f"{os.getpid()} {child.pid} {daemon} {os.getppid()}")
os.rename(f"pids.{rank}.tmp", f"pids.{rank}")
while not all(os.path.exists(f"pids.{r}") for r in range(int(os.environ["WORLD_SIZE"]))):
    time.sleep(0.01)
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
open(f"ready.{rank}", "w").close()
def fail():
    raise RuntimeError("this went wrong")
if rank == 1 and "raise" in sys.argv:
    fail()
if rank == 1 and "exit" in sys.argv:
    os._exit(7)
if rank == 1 and "kill" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(1000)
"""


def pids(folder: Path, ranks: int = 2) -> list[int]:
    """The processes of all workers, with everything they started."""
    return [
        int(pid) for r in range(ranks) for pid in (folder / f"pids.{r}").read_text().split()[:3]
    ]


def supervisor(folder: Path) -> int:
    return int((folder / "pids.0").read_text().split()[3])


def await_workers(folder: Path, ranks: int = 2) -> None:
    wait_until(lambda: all((folder / f"ready.{r}").exists() for r in range(ranks)), "workers")


def test_an_exception_is_shown_with_its_rank_and_log(fleetrun, script, tmp_path):
    script(CRASH)
    run = fleetrun("--nproc_per_node=2", "train.py", "raise")
    assert run.end() == 1
    assert "Rank 1 on 127.0.0.1 failed first: it ended with exit code 1." in run.stderr
    assert f"---- last lines of {Path('log/workerlog.1')} ---" in run.stderr
    report = run.stderr.partition("last lines of")[2].splitlines()[1:]
    assert report[0] == "Traceback (most recent call last):"
    assert "    fail()" in report
    assert report[-2:] == ["RuntimeError: this went wrong", "-" * 72]
    assert [pid for pid in pids(tmp_path) if is_running(pid)] == []


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("exit", 7, "it ended with exit code 7"),
        ("kill", 137, "killed by SIGKILL, by another process or by the system"),
    ],
)
def test_every_end_is_named_and_passed_on(fleetrun, script, tmp_path, how, code, words):
    script(CRASH)
    run = fleetrun("--nproc_per_node=2", "train.py", how, "deaf")
    assert run.end() == code
    assert f"Rank 1 on 127.0.0.1 failed first: {words}." in run.stderr
    assert "It wrote nothing to its log log/workerlog.1." in run.stderr
    assert [pid for pid in pids(tmp_path) if is_running(pid)] == []


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signals_end_everything(fleetrun, script, tmp_path, signum, code):
    script(CRASH)
    run = fleetrun("--nproc_per_node=2", "train.py")
    await_workers(tmp_path)
    os.kill(run.pid, signum)
    assert run.end() == code
    assert signum.name in run.stderr
    assert [pid for pid in pids(tmp_path) if is_running(pid)] == []


def test_a_second_ctrl_c_does_not_wait(fleetrun, script, tmp_path):
    script(CRASH)
    run = fleetrun("--nproc_per_node=2", "train.py", "deaf")
    await_workers(tmp_path)
    os.kill(run.pid, signal.SIGINT)
    os.kill(run.pid, signal.SIGTERM)
    assert run.end() == 130
    assert [pid for pid in pids(tmp_path) if is_running(pid)] == []


def test_ctrl_c_in_a_terminal(script, tmp_path):
    """The terminal signals its foreground group; workers get the signal once and may save."""
    script(
        "import time, pathlib\n"
        "try:\n    pathlib.Path('ready.0').touch()\n    time.sleep(1000)\n"
        "except KeyboardInterrupt:\n    print('saved')\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        command = [sys.executable, "-m", "fleetx.launch", "train.py"]
        os.execve(sys.executable, command, clean_environment())
    await_workers(tmp_path, ranks=1)
    os.write(terminal, b"\x03")
    shown = b""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # what reading from a terminal without programs gives
            break
        shown += data
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130, shown
    assert shown.count(b"saved") == 1
    os.close(terminal)


@pytest.mark.parametrize("who", ["fleetrun", "supervisor"])
def test_killing_a_launcher_process_leaves_nothing(fleetrun, script, tmp_path, who):
    script(CRASH)
    run = fleetrun("--nproc_per_node=2", "train.py")
    await_workers(tmp_path)
    above = supervisor(tmp_path)
    assert above != run.pid
    os.kill(run.pid if who == "fleetrun" else above, signal.SIGKILL)
    assert run.end() == (-9 if who == "fleetrun" else 137)
    everything = [*pids(tmp_path), above]
    wait_until(lambda: not any(map(is_running, everything)), "all processes to end")


def test_leftovers_of_workers_that_ended_well_are_ended_too(fleetrun, script, tmp_path):
    script(CRASH.replace("time.sleep(1000)\n", "sys.exit(0)\n").replace("\ntime.sleep(1000)", ""))
    run = fleetrun("--nproc_per_node=2", "train.py")
    assert run.end() == 0, run.stderr
    assert [pid for pid in pids(tmp_path) if is_running(pid)] == []


def test_no_port_stays_taken(fleetrun, script, tmp_path):
    script(
        "import os, pathlib, time, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "pathlib.Path('port').write_text(os.environ['MASTER_PORT'])\n"
        "dist.barrier()\n"
        "if dist.get_rank() == 1: os._exit(3)\n"
        "time.sleep(1000)\n"
    )
    run = fleetrun("--nproc_per_node=2", "train.py", env=warm_start.variables())
    assert run.end() == 3
    port = int((tmp_path / "port").read_text())
    # fleetrun chose it; another job of this machine may have it for a moment.
    wait_until(lambda: are_free([port]), f"port {port}")


def test_the_rank_that_failed_first_is_named_not_its_victims(fleetrun, script):
    script(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.zeros(1))\n"
        "if dist.get_rank() == 1: raise KeyError('the cause')\n"
        "dist.all_reduce(torch.zeros(1))\n"
    )
    run = fleetrun("--nproc_per_node=3", "train.py", env=warm_start.variables())
    # torch's Gloo sometimes aborts a process that leaves by an exception.
    assert run.end() in (1, 128 + signal.SIGABRT)
    assert "Rank 1 on 127.0.0.1 failed first" in run.stderr
    assert "KeyError: 'the cause'" in run.stderr


def test_restarts(fleetrun, script, tmp_path):
    script(
        "import os, pathlib, sys, time\n"
        "tries, rank = os.environ['TORCHELASTIC_RESTART_COUNT'], os.environ['RANK']\n"
        "print('try', tries, rank, flush=True)\n"
        "pathlib.Path(f'printed.{tries}.{rank}').touch()\n"
        # A failure ends the other worker, which may not have printed its line by then.
        "while rank == '1' and not os.path.exists(f'printed.{tries}.0'): time.sleep(0.01)\n"
        "sys.exit(5 if int(tries) < 2 and rank == '1' else 0)\n"
    )
    run = fleetrun("--nproc_per_node=2", "--max_restart=2", "train.py")
    assert run.end() == 0, run.stderr
    assert re.findall(r"restart \d of \d", run.stderr) == ["restart 1 of 2", "restart 2 of 2"]
    assert [line for line in run.stdout.splitlines() if line.startswith("try")] == [
        f"try {n} 0" for n in range(3)
    ]
    run = fleetrun("--nproc_per_node=2", "--max_restart=1", "train.py")
    assert run.end() == 5


def test_a_closed_output_ends_the_job(script, tmp_path):
    script("import time\nfor i in range(100000):\n    print(i)\n    time.sleep(0.001)\n")
    command = f"{sys.executable} -m fleetx.launch train.py 2>err | head -60 >shown"
    subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=clean_environment(), timeout=LIMIT, check=True
    )
    wait_until(lambda: "SIGPIPE" in (tmp_path / "err").read_text(), "the reason")


def memory_group(name: str) -> Path | None:
    """A control group with little memory, where this machine lets us make one."""
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / name
        try:
            group.mkdir()
            (group / limit).write_text(str(100 << 20))
        except OSError:
            continue
        return group
    return None


def test_out_of_memory_is_recognised(fleetrun, script):
    group = memory_group(f"fleetx-test-{os.getpid()}")
    if group is None:
        pytest.skip("needs the right to make a control group with a memory limit")
    try:
        script(
            "import os, time\n"
            "if os.environ['RANK'] == '0': time.sleep(1000)\n"
            "hoard = [bytearray(os.urandom(1 << 20)) * 8 for _ in range(1000)]\n"
        )
        enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        run = fleetrun("--nproc_per_node=2", "train.py", prefix=["sh", "-c", enter, "sh"])
        assert run.end() == 137, run.stderr
        assert "Rank 1 on 127.0.0.1 failed first: killed, probably out of memory" in run.stderr
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "an empty group")
        group.rmdir()
