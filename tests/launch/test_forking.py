"""fleetrun --start_method fork: workers are forked from a process that has loaded PyTorch, and
behave as if Python had started them."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from launching import clean_environment

from fleetx.launch import warm_parent
from fleetx.launch.arguments import parse
from fleetx.launch.forking import uses_torch
from fleetx.launch.launch_errors import LaunchError
from waiting import LIMIT, is_running, wait_until

pytestmark = pytest.mark.slow  # starts jobs
FORK = ("--nproc_per_node=2", "--start_method=fork")

FACTS = """
import atexit, json, os, pickle, signal, sys, torch

class Thing:
    pass

def modules_of_ours():
    return sorted(n for n in sys.modules if n in ("run_script", "warm_parent", "fleetx"))

handled = [signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD, signal.SIGHUP]
facts = {
    "argv": sys.argv,
    "path": sys.path,
    "main": [__name__, __file__, __package__, sys.modules["__main__"].__dict__ is globals()],
    "folder": os.getcwd(),
    "typed": sys.stdin.read(),
    "umask": os.umask(0),
    "signals": [str(signal.getsignal(s)) for s in handled],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "session": os.getsid(0) == os.getpid(),
    "pickled": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
    "ours": modules_of_ours(),
    "descriptors": sorted(int(n) for n in os.listdir("/proc/self/fd"))[:3],
    "options": [sys.executable, sys.prefix, str(sys.flags), sys.stdout.encoding,
                sys.stdout.errors, sys.stdout.line_buffering, sys.stdout.write_through],
    "threads": [torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")],
    "variables": sorted(n for n in os.environ if n not in ("FLEETX_START_METHOD",)),
}
with open(sys.argv[1] + "." + os.environ["RANK"], "w") as file:
    json.dump(facts, file)
numpy_number = __import__("numpy").random.random()
with open(sys.argv[1] + ".own." + os.environ["RANK"], "w") as file:
    seeds = [numpy_number, torch.initial_seed()]
    json.dump([os.getpid(), os.getppid(), os.environ["RANK"], *seeds], file)
atexit.register(print, "goodbye of", os.environ["RANK"])
"""


def test_workers_are_as_if_python_had_started_them(fleetrun, script, tmp_path):
    script(FACTS)
    for method in ("spawn", "fork"):
        run = fleetrun(
            *("--nproc_per_node=2", "--start_method", method, "--log_dir", f"log.{method}"),
            *("train.py", method, "--lr", "0.1"),
            typed=b"typed\n",
        )
        assert run.end() == 0, run.stderr
        assert "goodbye of 1" in (tmp_path / f"log.{method}" / "workerlog.1").read_text()
        assert "goodbye of 0" in run.stdout
    for rank in range(2):
        facts = [json.loads((tmp_path / f"{m}.{rank}").read_text()) for m in ("spawn", "fork")]
        for fact in facts:
            fact["argv"].remove("spawn" if fact is facts[0] else "fork")
        assert facts[0] == facts[1]
    own = [json.loads((tmp_path / f"fork.own.{rank}").read_text()) for rank in range(2)]
    assert own[0][1] == own[1][1]  # both are children of the supervisor
    assert own[0][0] != own[1][0]
    assert [each[2] for each in own] == ["0", "1"]
    assert own[0][3] != own[1][3]  # random numbers of NumPy
    assert own[0][4] != own[1][4]  # the seed of torch


ENDS = """
import os, signal, sys, time, torch
rank = os.environ["RANK"]
if "module" in sys.argv:
    assert __name__ == "__main__" and sys.path[0] == os.getcwd(), sys.path
if rank == "1" and not os.path.exists("failed"):
    open("failed", "w").close()
    raise ValueError("the first time")
if rank == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
print("end of", rank, "after", os.environ["TORCHELASTIC_RESTART_COUNT"], "restarts")
"""


def test_modules_failures_and_restarts(fleetrun, script, tmp_path):
    script(ENDS, "ends.py")
    run = fleetrun(*FORK, "--max_restart=2", "-m", "ends", "module")
    assert run.end() == 0, run.stderr
    text = (tmp_path / "log" / "workerlog.1").read_text()
    trace = text[text.index("Traceback") :].split("ValueError")[0]
    assert 'ends.py", line 8, in <module>' in trace
    assert trace.count("File ") == 1  # no frames of the launcher
    assert "SIGKILL" in run.stderr
    assert "end of 1 after 2 restarts" in text


WAIT = """
import os, time, torch
open("pid." + os.environ["RANK"] + ".part", "w").write(str(os.getpid()))
os.rename("pid." + os.environ["RANK"] + ".part", "pid." + os.environ["RANK"])
while True:
    time.sleep(0.01)  # until it is killed
"""


def test_a_killed_worker_ends_the_others_and_nothing_is_left(fleetrun, script, tmp_path):
    script(WAIT)
    run = fleetrun(*FORK, "train.py")
    files = [tmp_path / f"pid.{rank}" for rank in range(2)]
    wait_until(lambda: all(file.exists() for file in files), "both workers run")
    pids = [int(file.read_text()) for file in files]
    supervisor = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
    below = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    assert len(below) == 3  # both workers and the process that they were forked from
    os.kill(pids[1], signal.SIGKILL)
    assert run.end() == 137
    assert "Rank 1" in run.stderr
    assert not [pid for pid in below if is_running(int(pid))]


RESTARTED = """
import sys, time
from pathlib import Path
from fleetx.launch.forking import ForkedProcess, WarmParent
from fleetx.launch.group import Group, ProcessSpec
from fleetx.launch.processes import become_subreaper
import os

become_subreaper()
parent = WarmParent(dict(os.environ), Path("messages"))
assert parent.await_ready(lambda: None) == ""
command = [sys.executable, "-u", "once.py"]
spec = ProcessSpec(0, command, dict(os.environ), Path("log"), Path("heartbeat"), restarts=1)
group = Group([spec], "here", parent)
first = group.workers[0].process
while not group.completed and group.failure() is None:
    group.poll()
    time.sleep(0.01)
(worker,) = group.workers
assert isinstance(worker.process, ForkedProcess) and worker.process.pid != first.pid
print("restarted", worker.restarted, "ended with", first.returncode, worker.process.returncode)
parent.close()
"""


def test_one_worker_is_started_again_from_the_same_process(script, tmp_path):
    script(
        "import os, signal\nif 'FLEETX_RESTART_COUNT' not in os.environ:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n",
        "once.py",
    )
    done = subprocess.run(
        [sys.executable, str(script(RESTARTED))],
        cwd=tmp_path,
        env=clean_environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.stdout == "restarted 1 ended with -9 0\n", done.stderr


LOADS = """
import os, sys
from fleetx.launch import warm_parent

warm_parent._load_library()
with open("/proc/self/maps") as maps:
    print("libtorch_cpu.so" in maps.read(), "torch" in sys.modules, warm_parent._obstacle())
"""


@pytest.mark.parametrize("for_gpus", [False, True])
def test_only_the_library_of_a_cpu_version_is_loaded_before_torch(script, tmp_path, for_gpus):
    real = Path(torch.__file__).parent
    fake = tmp_path / "fake" / "torch"
    (fake / "lib").mkdir(parents=True)
    (fake / "__init__.py").write_text("raise ImportError('imported')")
    for file in (real / "lib").glob("*.so*"):
        if file.name not in warm_parent._GPU_LIBRARIES:
            (fake / "lib" / file.name).symlink_to(file)
    if for_gpus:
        (fake / "lib" / "libtorch_hip.so").touch()
    path = f"{fake.parent}:{Path(warm_parent.__file__).parents[2]}"
    done = subprocess.run(
        [sys.executable, str(script(LOADS))],
        env=clean_environment(OMP_NUM_THREADS="1", PYTHONPATH=path),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    expected = f"{not for_gpus} False PyTorch cannot be imported (imported)\n"
    assert done.stdout == expected, done.stderr


def test_workers_are_started_one_by_one_if_torch_cannot_be_loaded(fleetrun, script, tmp_path):
    broken = tmp_path / "broken" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('no such library')")
    script("import os; print('rank', os.environ['RANK'])")
    path = f"{tmp_path / 'broken'}:{Path(warm_parent.__file__).parents[2]}"
    run = fleetrun(
        "--nproc_per_node=2", "--start_method=fork", "train.py", env={"PYTHONPATH": path}
    )
    assert run.end() == 0, run.stderr
    assert "rank 0" in run.stdout
    assert "not forked, because PyTorch cannot be imported (no such library)" in run.stderr


def test_workers_are_started_one_by_one_if_importing_starts_threads(fleetrun, script, tmp_path):
    fake = tmp_path / "fake"
    for name in ("torch/distributed", "torch/nn/parallel", "torch/_dynamo"):
        (fake / name).mkdir(parents=True)
    (fake / "torch" / "__init__.py").write_text(
        "import threading, types\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "cuda = types.SimpleNamespace(is_initialized=lambda: False)\n"
    )
    script("import os; print('rank', os.environ['RANK'])")
    path = f"{fake}:{Path(warm_parent.__file__).parents[2]}"
    run = fleetrun(
        "--nproc_per_node=2", "--start_method=fork", "train.py", env={"PYTHONPATH": path}
    )
    assert run.end() == 0, run.stderr
    assert "not forked, because importing PyTorch has started 1 threads" in run.stderr


def test_a_process_that_dies_while_it_loads_is_said_so(fleetrun, script, tmp_path):
    fake = tmp_path / "fake" / "torch"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("import os; print('cannot go on'); os._exit(3)")
    script("import os; print('rank', os.environ['RANK'])")
    path = f"{fake.parent}:{Path(warm_parent.__file__).parents[2]}"
    run = fleetrun(
        "--nproc_per_node=2", "--start_method=fork", "train.py", env={"PYTHONPATH": path}
    )
    assert run.end() == 0, run.stderr
    assert "the process that loads PyTorch has failed (cannot go on)" in run.stderr


def test_other_programs_and_values_are_refused(fleetrun, script, tmp_path):
    script("#!/bin/sh\ntrue\n", "program").chmod(0o755)
    run = fleetrun("--start_method=fork", "program")
    assert run.end() == 2
    assert "--start_method fork is for Python scripts, but program is another" in run.stderr
    script("import torch")
    run = fleetrun("--start_method=fork", "--nnodes=2", "--master=127.0.0.1:29999", "train.py")
    assert run.end() == 2
    assert "--start_method fork is for jobs of one machine, but this one has 2" in run.stderr
    run = fleetrun("--start_method=fork", "--server_num=1", "--worker_num=1", "train.py")
    assert run.end() == 2
    assert "--start_method fork is for collective training" in run.stderr
    with pytest.raises(LaunchError, match="--start_method is spawn or fork, not 'thread'"):
        parse(["--start_method=thread", "train.py"], {})


@pytest.mark.parametrize("sent", [b"", b"half of a "])
def test_a_request_whose_sender_dies_is_none(sent):
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as file:
        socket.send_fds(theirs, [(100).to_bytes(8, "little")], [file.fileno()])
        theirs.sendall(sent)
        theirs.close()
        request, descriptors = warm_parent.receive(ours, 1)
    assert (request, descriptors) == (None, [])


def test_default_and_environment():
    assert parse(["train.py"], {}).start_method == "auto"
    assert parse(["train.py"], {"FLEETX_START_METHOD": "spawn"}).start_method == "spawn"
    flag = ["--start_method", "fork", "train.py"]
    assert parse(flag, {"FLEETX_START_METHOD": "spawn"}).start_method == "fork"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import torch", True),
        ("x = 1\n  from fleetx import fleet", True),
        ("import paddle.fluid as fluid", True),
        ("import torchlight", False),
        ("# import torch", False),
    ],
)
def test_scripts_that_use_torch_are_recognised(tmp_path, text, found):
    script = tmp_path / "train.py"
    script.write_text(text)
    assert uses_torch(str(script)) is found
    assert not uses_torch(str(tmp_path))
