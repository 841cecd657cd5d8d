"""Models in jobs of several processes: BERT with two workers, wide and deep with a server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import bert_folder, click_file

import warm_start
from waiting import LIMIT

pytestmark = pytest.mark.slow  # starts jobs or servers

ROOT = Path(__file__).resolve().parents[3]
WORKERS = Path(__file__).parent / "workers"


def launch(folder: Path, script: str, flags: list[str], *arguments: str) -> None:
    """Run a script under fleetrun."""
    command = [sys.executable, "-m", "fleetx.launch", *flags, "--log_dir", str(folder / "log")]
    environment = warm_start.environment()
    done = subprocess.run(
        [*command, str(WORKERS / script), *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    logs = "".join(path.read_text() for path in sorted((folder / "log").glob("*log.*")))
    assert done.returncode == 0, done.stdout + done.stderr + logs


def results(folder: Path, name: str) -> list[dict]:
    return [json.loads((folder / f"{name}.{rank}").read_text()) for rank in range(2)]


def test_two_workers_train_bert_on_shares_of_the_text(tmp_path: Path):
    text = bert_folder(tmp_path / "text")
    launch(tmp_path, "pretrain_bert.py", ["--nproc_per_node", "2"], str(text), str(tmp_path))
    one, two = results(tmp_path, "bert")
    assert one["steps"] == two["steps"] > 3
    assert one["losses"] != two["losses"]  # of different batches
    assert one["losses"][-1] < one["losses"][0]
    assert one["weights"] == pytest.approx(two["weights"], abs=1e-6)


def test_wide_and_deep_trains_with_a_parameter_server(tmp_path: Path):
    clicks = click_file(tmp_path / "part-0")
    flags = ["--server_num", "1", "--worker_num", "2"]
    launch(tmp_path, "train_ctr.py", flags, str(clicks), str(tmp_path))
    for worker in results(tmp_path, "ctr"):
        assert worker["steps"] == 4
        assert worker["means"][-1] < worker["means"][0]


def test_the_example_learns_alone(tmp_path: Path):
    script = ROOT / "examples" / "ctr" / "train.py"
    environment = warm_start.environment()
    done = subprocess.run(
        [sys.executable, str(script), "--epochs", "3"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    areas = [float(area) for area in re.findall(r"auc = (0\.\d+)", done.stdout)]
    assert areas[-1] > max(areas[0], 0.65)
