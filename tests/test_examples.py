"""The examples run as a user starts them, and reach what they promise."""

import difflib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import warm_start

pytestmark = pytest.mark.slow  # starts jobs or servers

ROOT = Path(__file__).resolve().parent.parent
FLEETRUN = ["-m", "fleetx.launch", "--nproc_per_node", "2"]
TORCHRUN = ["-m", "torch.distributed.run", "--nproc_per_node", "2"]


def run_example(launcher: list[str], script: str, folder: Path, *arguments: object) -> str:
    command = [sys.executable, *launcher, str(ROOT / "examples" / script), *map(str, arguments)]
    environment = warm_start.environment()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.mark.parametrize("launcher", [[], FLEETRUN], ids=["python", "fleetrun"])
def test_digits_learns_saves_loads_and_predicts(launcher, tmp_path):
    output = tmp_path / "output"
    printed = run_example(launcher, "digits/train.py", tmp_path, "--output", output)
    accuracy = float(re.search(r"never saw: ([0-9.]+)%", printed).group(1))
    assert accuracy > 97
    assert f"Trained by {2 if launcher else 1} worker" in printed
    assert {path.name for path in output.iterdir() if path.is_file()} == {
        "digits.pdmodel",
        "digits.pdiparams",
    }
    seen, label = re.search(r"sees a (\d).*label is (\d)", printed, re.DOTALL).groups()
    assert seen == label


@pytest.mark.parametrize("launcher", [FLEETRUN, TORCHRUN], ids=["fleetrun", "torchrun"])
def test_pytorch_script_trains_under_each_launcher(launcher, tmp_path):
    printed = run_example(launcher, "pytorch/train_fleet.py", tmp_path)
    accuracy = float(re.search(r"never saw: ([0-9.]+)%", printed).group(1))
    assert accuracy > 95


def test_pytorch_script_trains_alone_as_before_the_change(tmp_path):
    plain = run_example([], "pytorch/train.py", tmp_path)
    assert run_example([], "pytorch/train_fleet.py", tmp_path) == plain


def test_gpt_learns_alike_on_one_worker_and_divided_between_two(tmp_path):
    small = ["--steps", 20, "--batch", 4, "--length", 16, "--width", 32, "--blocks", 2]
    alone = run_example([], "gpt/train.py", tmp_path, *small)
    divided = ["--tensor_parallel", 2], ["--sharding", 3, "--recompute", "--save", "saved"]
    losses = [
        [float(loss) for loss in re.findall(r"^step \d+: loss ([0-9.]+)$", printed, re.M)]
        for printed in (
            alone,
            *(run_example(FLEETRUN, "gpt/train.py", tmp_path, *small, *more) for more in divided),
        )
    ]
    assert len(losses[0]) == 2
    assert losses[0][1] < losses[0][0]
    for each in losses[1:]:
        assert each == pytest.approx(losses[0], abs=2e-4)
    assert (tmp_path / "saved").is_dir()


def test_a_technique_from_outside_the_package_trains_with_others(tmp_path):
    printed = run_example(FLEETRUN, "own_technique/train.py", tmp_path)
    assert re.search(r"grad_sync .* eight_bits", printed)
    losses = [float(loss) for loss in re.findall(r"^step \d+: loss ([0-9.]+)$", printed, re.M)]
    assert len(losses) == 4
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_pages_show_the_change_as_it_is(page):
    before, after = (
        (ROOT / "examples" / "pytorch" / name).read_text().splitlines()
        for name in ("train.py", "train_fleet.py")
    )
    lines = difflib.unified_diff(before, after, "train.py", "train_fleet.py", n=1, lineterm="")
    block = "```diff\n" + "\n".join(line.rstrip() for line in lines) + "\n```\n"
    assert block in (ROOT / page).read_text(), f"{page} should have:\n{block}"


def test_movielens_learns_alike_with_servers_and_alone_and_exports(tmp_path):
    found = {}
    servers = ["-m", "fleetx.launch", "--server_num", "2", "--worker_num", "2"]
    samples = tmp_path / "samples.npz"
    # Both export to one folder, as on the page: each gets a number of its own.
    for number, (name, launcher) in enumerate((("alone", []), ("servers", servers)), 1):
        output = tmp_path / "output"
        printed = run_example(
            launcher, "movielens/train.py", tmp_path, "--output", output, "--epochs", 3
        )
        found[name] = re.search(r"auc ([0-9.]+), hit rate ([0-9.]+)", printed).groups()
        model = output / "models" / str(number)
        assert f"exported to {model}" in printed
        evaluated = run_example([], "movielens/evaluate.py", tmp_path, model, "--samples", samples)
        assert evaluated.strip() == f"auc {found[name][0]}, hit rate {found[name][1]}"
    with np.load(samples) as arrays:
        assert {array: len(arrays[array]) for array in arrays} == {"user": 1000, "film": 1000}
    assert float(found["alone"][0]) > 0.7
    assert float(found["servers"][0]) == pytest.approx(float(found["alone"][0]), abs=0.01)
