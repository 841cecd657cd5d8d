"""--hang_timeout: who hangs where. And that running under it changes nothing for a script."""

import re
from pathlib import Path

import pytest

from fleetx.launch import heartbeat

HANG = """
import subprocess, time
# Loading torch may take longer than the limit: signs of life come from elsewhere until then.
life = subprocess.Popen(["sh", "-c", "while :; do echo alive; sleep 0.2; done"])
import torch, torch.distributed as dist
from fleetx.launch import heartbeat

def wait_for_ever():
    time.sleep(1000)

dist.init_process_group("gloo")
for _ in range(3):
    dist.all_reduce(torch.zeros(1))
    heartbeat.beat()
life.kill()
if dist.get_rank() == 1:
    with heartbeat.collective("exchange of the weights"):
        wait_for_ever()
dist.all_reduce(torch.zeros(1))
"""


@pytest.mark.slow
def test_stacks_and_collectives_of_all_ranks(fleetrun, script):
    script(HANG)
    run = fleetrun("--nproc_per_node=2", "--hang_timeout=3", "train.py")
    assert run.end() == 1
    assert "No worker made a step or wrote a line for " in run.stderr
    zero, one = re.split(r"^rank 1: ", run.stderr.partition("\nrank 0: ")[2], flags=re.MULTILINE)
    assert zero.startswith("3 steps done, in all_reduce\n")
    assert "    dist.all_reduce(torch.zeros(1))" in zero
    assert one.startswith("3 steps done, in exchange of the weights\n")
    assert one.index(", in <module>") < one.index(", in wait_for_ever")
    assert "    time.sleep(1000)" in one
    assert "run_script.py" not in run.stderr


@pytest.mark.slow
def test_steps_and_output_count_as_life(fleetrun, script):
    script(
        "import os, time\n"
        "from fleetx.launch import heartbeat\n"
        "for _ in range(10):\n"
        "    time.sleep(0.5)\n"
        "    print('x') if os.environ['RANK'] == '0' else heartbeat.beat()\n"
    )
    run = fleetrun("--nproc_per_node=2", "--hang_timeout=4", "train.py")
    assert run.end() == 0, run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["train.py"], ["-m", "train"]])
def test_tracebacks_look_as_without_it(fleetrun, script, tmp_path, arguments):
    script("def fail():\n    raise ValueError('as usual')\n\n\nfail()\n")
    for flags in ([], ["--hang_timeout=60"]):
        assert fleetrun(*flags, "--log_dir", f"log{len(flags)}", *arguments).end() == 1
    plain = (tmp_path / "log0/workerlog.0").read_text()
    assert "ValueError: as usual" in plain
    if arguments == ["-m", "train"]:  # Python itself shows how it found the module
        plain = re.sub(r'  File "<frozen runpy>".*\n', "", plain)
    assert (tmp_path / "log1/workerlog.0").read_text() == plain


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
    run = fleetrun("--hang_timeout=60", "train.py", "--flag")
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
        assert heartbeat.read(file) == heartbeat.Pulse(0, "")
        heartbeat.beat()
        heartbeat.beat()
        with heartbeat.collective("a longer name, " * 40):
            assert heartbeat.read(file).collective.startswith("a longer name, a longer")
        with heartbeat.collective("short"):
            assert heartbeat.read(file) == heartbeat.Pulse(2, "short")
        assert heartbeat.read(file) == heartbeat.Pulse(2, "")
