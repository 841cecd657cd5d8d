"""Hangs: which worker hangs where; monitoring changes nothing for a script."""

import re
from pathlib import Path

import pytest

from fleetx.launch import fault_dump
from fleetx.runtime import heartbeat

# Importing torch may take longer than the limit: signs of life come from elsewhere until the main
# thread is in the function that it hangs in, however long that takes.
LIFE = """
import subprocess, sys, threading, time
life = subprocess.Popen(["sh", "-c", "while :; do echo alive; sleep 0.2; done"])

def end_life(function, main=threading.get_ident()):
    while True:
        frame = sys._current_frames()[main]
        while frame is not None and frame.f_code.co_name != function:
            frame = frame.f_back
        if frame is not None:
            return life.kill()
        time.sleep(0.01)

def hangs_in(function):
    threading.Thread(target=end_life, args=(function,)).start()
"""

HANG = """
import torch, torch.distributed as dist
from fleetx.runtime import heartbeat

def wait_for_ever():
    time.sleep(1000)

dist.init_process_group("gloo")
for _ in range(3):
    dist.all_reduce(torch.zeros(1))
    heartbeat.beat()
if dist.get_rank() == 1:
    hangs_in("wait_for_ever")
    with heartbeat.collective("exchange of the weights"):
        wait_for_ever()
hangs_in("all_reduce")
dist.all_reduce(torch.zeros(1))
"""


@pytest.mark.slow
def test_stacks_and_collectives_of_all_ranks(fleetrun, script):
    script(LIFE + HANG)
    run = fleetrun("--nproc_per_node=2", "--hang_timeout=10", "train.py")
    assert run.end() == 1
    assert "No worker made a step or wrote a line for " in run.stderr
    zero, one = re.split(r"^rank 1: ", run.stderr.partition("\nrank 0: ")[2], flags=re.MULTILINE)
    assert zero.startswith("3 steps done, in all_reduce\n")
    assert "    dist.all_reduce(torch.zeros(1))" in zero
    assert one.startswith("3 steps done, in exchange of the weights\n")
    assert one.index(", in <module>") < one.index(", in wait_for_ever")
    assert "    time.sleep(1000)" in one
    assert "run_script.py" not in run.stderr


def test_a_process_that_does_not_respond_has_no_stack():
    assert fault_dump.threads("") == []
    assert fault_dump.current_thread("") == []


FREEZE = """
import os, signal, time
from fleetx.runtime import heartbeat
for _ in range(3):
    heartbeat.beat()
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGSTOP)
with heartbeat.collective("gradient all-reduce"):
    time.sleep(1000)
"""
FLEETRUN = """
from fleetx.launch import fleetrun, hang_detection
hang_detection.LEAST = 3
raise SystemExit(fleetrun.main())
"""


@pytest.mark.slow
def test_a_frozen_worker_is_named_without_a_flag(fleetrun, script):
    script(FREEZE)
    run = fleetrun("--nproc_per_node=2", "train.py", python=("-c", FLEETRUN))
    assert run.end() == 1
    zero, one = re.split(r"^rank 1: ", run.stderr.partition("\nrank 0: ")[2], flags=re.MULTILINE)
    assert zero.startswith("3 steps done, in gradient all-reduce\n")
    assert "    time.sleep(1000)" in zero
    assert re.match(r"3 steps done, in .*: frozen, process \d+ was stopped by a signal", one)
    last = run.stderr.splitlines()[-1]
    assert "No worker made a step or wrote a line for " in last
    assert re.search(r" Frozen by a signal: rank 1 \(process \d+\)\.$", last)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["train.py"], ["-m", "train"]])
def test_tracebacks_look_as_without_it(fleetrun, script, tmp_path, arguments):
    script("def fail():\n    raise ValueError('as usual')\n\n\nfail()\n")
    for flags in ([], ["--hang_timeout=0"]):
        assert fleetrun(*flags, "--log_dir", f"log{len(flags)}", *arguments).end() == 1
    plain = (tmp_path / "log1/workerlog.0").read_text()
    assert "ValueError: as usual" in plain
    if arguments == ["-m", "train"]:  # Python itself shows how it found the module
        plain = re.sub(r'  File "<frozen runpy>".*\n', "", plain)
    assert (tmp_path / "log0/workerlog.0").read_text() == plain


def test_main_module_is_the_script(fleetrun, script, tmp_path):
    script(
        "import multiprocessing, pickle, sys\n"
        "class Thing:\n    pass\n"
        "def double(x):\n    return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    assert isinstance(pickle.loads(pickle.dumps(Thing())), Thing)\n"
        "    assert sys.modules['__main__'].__file__ == __file__\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(double, [1, 2]), sys.argv)\n"
    )
    run = fleetrun("train.py", "--flag")
    assert run.end() == 0, run.stderr + run.stdout
    assert "[2, 4] ['train.py', '--flag']" in run.stdout


class TestHeartbeat:
    @pytest.fixture(autouse=True)
    def _fresh(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(heartbeat, "_writer", None)

    def test_without_a_launcher_nothing_happens(self, monkeypatch):
        monkeypatch.delenv("FLEETX_HEARTBEAT", raising=False)
        heartbeat.beat()
        with heartbeat.collective("x"):
            pass

    def test_steps_and_names_are_seen_from_outside(self, monkeypatch, tmp_path):
        file: Path = tmp_path / "beat"
        heartbeat.prepare(file)
        monkeypatch.setenv("FLEETX_HEARTBEAT", str(file))
        assert heartbeat.read(file) == heartbeat.Pulse(0, 0, "")
        heartbeat.beat()
        heartbeat.beat()
        with heartbeat.collective("a longer name, " * 40):
            assert heartbeat.read(file).collective.startswith("a longer name, a longer")
        with heartbeat.collective("short"):
            assert heartbeat.read(file) == heartbeat.Pulse(2, 2, "short")
        heartbeat.show_life()
        assert heartbeat.read(file) == heartbeat.Pulse(2, 3, "")
