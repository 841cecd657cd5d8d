"""Installing without a C compiler, and what the installation then does: the same, more slowly."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import warm_start
from fleetx.kernels import compiled
from source_copy import ROOT, copy_sources

pytestmark = pytest.mark.slow  # starts jobs or servers

# Rows for any ids, first values of a normal distribution, and a count of how often ids come.
JOB = """
import torch, fleetx
from fleetx import fleet
from fleetx.kernels import compiled

strategy = fleet.DistributedStrategy()
strategy.a_sync = False
fleet.init(strategy=strategy)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    torch.manual_seed(1)
    rows = fleetx.SparseEmbedding(
        "t", 4, entry=fleetx.CountFilterEntry(2), initializer="normal"
    )
    model = torch.nn.Sequential(rows, torch.nn.Linear(4, 1))
    fleet.init_worker()
    model = fleet.distributed_model(model)
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.01))
    for _ in range(6):
        ids = torch.randint(0, 50, (64,)) * 10**15
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(ids), ids[:, None] / 10**15)
        loss.backward()
        optimizer.step()
    print("missing:", sum(not compiled.is_there(name) for name in compiled.MODULES))
    print("loss:", loss.item().hex(), model(torch.tensor([10**15])).item().hex())
    fleet.stop_worker()
"""


def without_compiler(**more: str) -> dict[str, str]:
    """The environment of a machine on which no compiler is found."""
    return {**os.environ, "PATH": "/nowhere", "CC": "cc", "LDSHARED": "cc -shared", **more}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what an installation reads."""
    return copy_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def installed(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where fleetx was installed without a compiler, and what pip said."""
    target = tmp_path_factory.mktemp("installed")
    flags = ["--no-deps", "--no-build-isolation", "--no-compile", "--target", str(target)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-v", "--no-index", *flags, str(sources)],
        env=without_compiler(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return target, done.stdout


def run(path: Path, *command: str, cwd: Path) -> str:
    """Run a module of the installation in `path`; return all it wrote."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env={**os.environ, **warm_start.torch_variables(path), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_pip_says_in_one_line_what_is_missing(installed):
    target, output = installed
    assert not list(target.rglob("*.so"))
    assert (target / "fleetx" / "kernels" / "index_in_numpy.py").is_file()
    lines = [line for line in output.splitlines() if "slower code in Python" in line]
    assert len(lines) == 1
    assert "there is no C compiler ('cc' was not found)" in lines[0]
    assert all(name in lines[0] for name in compiled.MODULES)
    assert "Traceback" not in output


def test_info_says_what_is_slower(installed, tmp_path):
    shown = run(installed[0], "fleetx", "info", cwd=tmp_path)
    assert shown.count("in Python, slower: not compiled") == len(compiled.MODULES)


def test_a_job_with_servers_gives_the_same_and_says_so_once(installed, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    command = ["fleetx.launch", "--server_num", "1", "--worker_num", "1", "job.py"]
    slow = run(installed[0], *command, cwd=tmp_path)
    assert f"missing: {len(compiled.MODULES)}" in slow
    assert slow.count("Slower code in Python handles ids of parameter servers") == 1
    usual = run(ROOT / "src", "job", cwd=tmp_path)  # alone, with tables of its own
    assert losses(slow) == losses(usual)


def losses(output: str) -> str:
    """The one line with the numbers that training ended with."""
    (found,) = [line[line.index("loss:") :] for line in output.splitlines() if "loss:" in line]
    return found


def test_a_compiler_that_fails_is_told_and_goes_on(sources, tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'no Python.h' >&2\nexit 1\n")
    compiler.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", tmp_path / "built"]
        + ["--build-temp", tmp_path / "temporary"],
        cwd=sources,
        env={**os.environ, "CC": str(compiler), "LDSHARED": f"{compiler} -shared"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "no Python.h" in done.stdout
    told = [line for line in done.stdout.splitlines() if "slower code in Python" in line]
    assert len(told) == 1
    assert f"the C compiler '{compiler}' failed, see above" in told[0]
    assert not list(tmp_path.rglob("*.so"))


def test_a_module_that_does_not_load_is_told(sources, tmp_path):
    """One that was built for another system, say."""
    shutil.copytree(sources / "src", tmp_path / "src")
    (tmp_path / "src" / "fleetx" / "kernels" / "_rows.so").write_bytes(b"not a library")
    (tmp_path / "use.py").write_text("from fleetx.kernels import native\nprint(native.RowStore)\n")
    output = run(tmp_path / "src", "use", cwd=tmp_path)
    assert "fleetx.kernels._rows is not used, slower code in Python runs instead" in output
    assert "rows_in_numpy.RowStore" in output
