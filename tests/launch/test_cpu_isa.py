"""A CPU that advertises instructions it does not carry must not end a worker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import warm_start
from fleetx.runtime import cpu_isa
from fleetx.runtime.cpu_isa import State
from waiting import LIMIT

AMX = "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu avx2 amx_bf16 amx_tile\n"
PLAIN = "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu avx2 avx512f\n"
# Notes the limit it runs under, and dies of SIGILL unless that is one of its arguments.
MORTAL = """
import os, signal, sys
limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "none")
with open(sys.argv[1], "a") as file:
    file.write(limit + "\\n")
if limit not in sys.argv[2:]:
    os.kill(os.getpid(), signal.SIGILL)
"""


class Probe:
    """A probe that dies under all limits but some, and a cache of its own."""

    def __init__(self, folder: Path, *good: str) -> None:
        self.runs = folder / "runs"
        program = folder / "probe.py"
        program.write_text(MORTAL)
        self.command = [sys.executable, str(program), str(self.runs), *good]
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        self.environment.pop("ONEDNN_MAX_CPU_ISA", None)

    def examine(self, cpuinfo: str = AMX, **more: str) -> cpu_isa.Verdict:
        return cpu_isa.examine({**self.environment, **more}, cpuinfo=cpuinfo, probe=self.command)

    @property
    def tried(self) -> list[str]:
        return self.runs.read_text().split() if self.runs.exists() else []

    @property
    def kept(self) -> Path:
        (found,) = Path(self.environment["XDG_CACHE_HOME"], "fleetx").iterdir()
        return found


def test_limits_are_tried_until_one_works_and_only_once(tmp_path):
    probe = Probe(tmp_path, "AVX512_CORE_BF16", "AVX2")
    found = probe.examine()
    assert (found.state, found.limit) == (State.LIMITED, "AVX512_CORE_BF16")
    assert "ends by SIGILL" in found.sentence()
    tried = ["none", "AVX512_CORE_FP16", "AVX512_CORE_BF16"]
    assert probe.tried == tried
    assert probe.examine() == found
    assert probe.tried == tried  # remembered
    # Another CPU, a damaged file, a folder that cannot be one: tested again.
    probe.examine(AMX.replace("A CPU", "B CPU"))
    assert probe.tried == tried * 2
    probe.kept.write_text('{"machine": ')
    assert probe.examine() == found
    assert json.loads(probe.kept.read_text())["outcomes"]["AVX512_CORE_BF16"] == 0
    (tmp_path / "file").touch()
    assert probe.examine(XDG_CACHE_HOME=str(tmp_path / "file")) == found
    assert probe.tried == tried * 4


def test_nothing_is_tested_without_need(tmp_path):
    probe = Probe(tmp_path)
    assert probe.examine(PLAIN) == cpu_isa.Verdict(State.PLAIN)
    assert probe.examine("") == cpu_isa.Verdict(State.PLAIN)
    given = probe.examine(ONEDNN_MAX_CPU_ISA="AVX2")
    assert given == cpu_isa.Verdict(State.GIVEN, "AVX2")
    assert "AVX2" in given.sentence()
    assert probe.tried == []


def test_other_ends(tmp_path):
    works = Probe(tmp_path, "none")
    assert works.examine() == cpu_isa.Verdict(State.FULL)
    for name in ("broken", "odd"):
        (tmp_path / name).mkdir()
    broken = Probe(tmp_path / "broken")
    found = broken.examine()
    assert (found.state, found.limit) == (State.BROKEN, "")
    assert broken.tried == ["none", *cpu_isa.LIMITS[1:]]
    odd = Probe(tmp_path / "odd")
    for command, words in (
        ([sys.executable, "-c", "raise KeyError('no torch')"], "code 1 KeyError: 'no torch'"),
        ([str(tmp_path / "nothing")], "No such file"),
    ):
        odd.command = command
        found = odd.examine()
        assert (found.state, found.limit) == (State.UNKNOWN, "")
        assert words in found.sentence()


def test_whether_half_precision_lives_in_an_environment(tmp_path):
    probe = Probe(tmp_path, "AVX2")

    def fails(cpuinfo: str = AMX, **more: str) -> str:
        environment = {**probe.environment, **more}
        return cpu_isa.half_precision_fails(environment, cpuinfo=cpuinfo, probe=probe.command)

    assert fails() == "it ends by SIGILL"
    assert fails(ONEDNN_MAX_CPU_ISA="AVX2") == ""
    assert fails(PLAIN) == ""
    assert probe.tried == ["none", "AVX2"]


@pytest.mark.slow
def test_the_real_probe_lives_here(tmp_path):
    """With all its ops, on whatever runs the tests; a limit is found where one is needed."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    found = cpu_isa.examine(environment, cpuinfo=AMX)
    assert found.state in (State.FULL, State.LIMITED, State.GIVEN)


DRIVER = """
import sys
from functools import partial
from fleetx.launch import fleetrun
from fleetx.runtime import cpu_isa
examine = partial(cpu_isa.examine, cpuinfo={cpuinfo!r}, probe={probe!r})
sys.exit(fleetrun.main(sys.argv[1:], examine=examine))
"""


@pytest.mark.parametrize("flags", [["--nproc_per_node=2"], ["--server_num=1", "--worker_num=1"]])
def test_fleetrun_limits_its_processes_and_says_so_once(fleetrun, script, tmp_path, flags):
    probe = Probe(tmp_path, "AVX512_CORE_FP16")
    script(DRIVER.format(cpuinfo=AMX, probe=probe.command), "driver.py")
    script(
        "import os\n"
        "role = os.environ.get('TRAINING_ROLE', '') + os.environ.get('PADDLE_TRAINER_ID', '')\n"
        "open('limit.' + role, 'w').write(os.environ['ONEDNN_MAX_CPU_ISA'])\n"
    )
    cache = {"XDG_CACHE_HOME": probe.environment["XDG_CACHE_HOME"]}
    run = fleetrun(*flags, "train.py", python=["driver.py"], env=cache)
    assert run.end() == 0, run.stderr
    assert run.stderr.count("ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 works and is set") == 1
    limits = [path.read_text() for path in tmp_path.glob("limit.*")]
    assert limits == ["AVX512_CORE_FP16"] * 2
    assert probe.tried == ["none", "AVX512_CORE_FP16"]


INIT = """
import os, sys, torch
from fleetx import fleet
from fleetx.runtime import cpu_isa
cpu_isa.prepare_process.__kwdefaults__.update(cpuinfo={cpuinfo!r}, probe={probe!r})
fleet.init(is_collective=True)
os.environ["ONEDNN_VERBOSE"] = "1"
torch.nn.functional.conv2d(torch.ones(8, 16, 32, 32), torch.ones(16, 16, 3, 3))
"""


@pytest.mark.slow
def test_init_limits_onednn_although_torch_is_imported(tmp_path):
    probe = Probe(tmp_path, "SSE41")
    for command, words in ((probe.command, ["isa:Intel SSE4.1"]), (["true"], [])):
        code = INIT.format(cpuinfo=AMX, probe=command)
        environment = {**probe.environment, **warm_start.variables(), "FLEETX_HEARTBEAT": ""}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stderr
        assert [word for word in ("isa:Intel SSE4.1",) if word in done.stdout] == words
        said = "export ONEDNN_MAX_CPU_ISA=SSE41" in done.stderr
        assert said == bool(words)


def test_info_shows_what_was_found(tmp_path, monkeypatch, capsys):
    from fleetx import cli

    probe = Probe(tmp_path, "AVX512_CORE")
    found = probe.examine()
    monkeypatch.setattr(cpu_isa, "examine", lambda: found)
    assert cli.main(["info"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "; this CPU advertises AMX, but PyTorch ends by SIGILL with it" in shown
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE works" in shown
    assert probe.tried == ["none", "AVX512_CORE_FP16", "AVX512_CORE_BF16", "AVX512_CORE"]
