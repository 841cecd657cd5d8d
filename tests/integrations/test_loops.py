"""The loops of Accelerate, transformers, Lightning and Fabric train with Fleet's techniques."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warm_start
from waiting import LIMIT

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent
SCRIPT = str(FOLDER / "workers" / "loops.py")
MANUAL = str(FOLDER / "workers" / "manual_loops.py")
JOBS = {
    "accelerate": "accelerate,transformers",
    "transformers": "accelerate,transformers",
    "lightning": "lightning,fabric",
    "fabric": "lightning,fabric",
}
CASES = ("theirs", "plain", "localsgd", "gradient_merge", "dgc", "sharding", "accumulated")
STEPS = 8  # per epoch, as in the script

Told = list[dict[str, Any]]


def run(folder: Path, libraries: str, launcher: list[str], cases: tuple[str, ...]) -> None:
    run_script([*launcher, SCRIPT, str(folder), libraries, *cases])


def run_script(arguments: list[str]) -> None:
    environment = warm_start.environment()
    environment["PYTHONPATH"] += f":{FOLDER.parent / 'techniques' / 'workers'}"
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr


def read(folder: Path, library: str) -> Told:
    return [json.loads((folder / f"{library}.{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {}


@pytest.fixture(params=sorted(JOBS))
def told(
    request: pytest.FixtureRequest,
    jobs: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Told:
    """Return what two workers wrote of every case; libraries that load each other share a job."""
    libraries = JOBS[request.param]
    if libraries not in jobs:
        jobs[libraries] = tmp_path_factory.mktemp("loops")
        launcher = ["-m", "fleetx.launch", "--nproc_per_node", "2"]
        launcher += ["--log_dir", str(jobs[libraries] / "log")]
        run(jobs[libraries], libraries, launcher, CASES)
    return read(jobs[libraries], request.param)


def test_without_a_technique_losses_are_those_of_the_librarys_ddp(told: Told) -> None:
    for worker in told:
        assert worker["plain"]["losses"] == pytest.approx(worker["theirs"]["losses"], rel=1e-6)
        assert len(worker["plain"]["losses"]) == 2 * STEPS
        assert worker["plain"]["sum"] == pytest.approx(worker["theirs"]["sum"], rel=1e-9)
        assert worker["plain"]["techniques"] == []


@pytest.mark.parametrize(("case", "share"), [("localsgd", 4), ("gradient_merge", 2), ("dgc", 30)])
def test_bytes_fall_as_explain_says(told: Told, case: str, share: int) -> None:
    for worker in told:
        found = worker[case]
        assert found["techniques"] == [case]
        assert found["said"] <= worker["plain"]["said"] / share
        # Headers, and what the library itself exchanges in a step, come on top.
        assert found["said"] <= found["received"] <= found["said"] + 2000
        assert found["received"] < worker["theirs"]["received"] / share * 1.2 + 1200


@pytest.mark.parametrize("case", ["localsgd", "gradient_merge", "dgc", "sharding"])
def test_the_librarys_own_resume_goes_on_where_the_checkpoint_was(told: Told, case: str) -> None:
    for worker in told:
        resumed = worker[case]["resumed"]
        assert resumed["losses"] == worker[case]["losses"][-STEPS:]
        assert resumed["sum"] == worker[case]["sum"]


def test_logging_and_progress_are_the_librarys_own(told: Told) -> None:
    for case in CASES:
        logged = [worker[case]["logged"] for worker in told]
        mean = sum(worker[case]["losses"][-1] for worker in told) / 2
        # Lightning logs a worker's own loss, the others that of all workers.
        own = [worker[case]["losses"][-1] for worker in told]
        assert logged in (pytest.approx([mean, mean], rel=1e-3), pytest.approx(own, rel=1e-3)), case
        if case != "accumulated" and "progress" in told[0][case]:
            done, whole = told[0][case]["progress"]
            assert done == whole == 2 * STEPS, case


def test_all_workers_end_with_one_model(told: Told) -> None:
    first, second = told
    for case in CASES:
        assert first[case]["sum"] == second[case]["sum"], case
    assert first["localsgd"]["sum"] != first["plain"]["sum"]


def test_accumulating_in_the_loop_is_gradient_merge(told: Told) -> None:
    for worker in told:
        assert worker["accumulated"]["sum"] == pytest.approx(
            worker["gradient_merge"]["sum"], rel=1e-9
        )


def test_manual_optimization_in_lightning(tmp_path: Path) -> None:
    launcher = ["-m", "fleetx.launch", "--nproc_per_node", "2", "--log_dir", str(tmp_path / "log")]
    run_script([*launcher, MANUAL, str(tmp_path)])
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    for theirs, ours in (("1", "ours 1"), ("2", "ours 2"), ("1", "averaged 1")):
        assert first[ours] == pytest.approx(first[f"theirs {theirs}"], abs=1e-10)


def test_workers_that_fabric_itself_starts(tmp_path: Path, jobs: dict[str, Path]) -> None:
    run(tmp_path, "fabric", [], ("theirs", "plain", "localsgd"))
    for worker in read(tmp_path, "fabric"):
        assert worker["plain"]["losses"] == pytest.approx(worker["theirs"]["losses"], rel=1e-6)
        assert worker["localsgd"]["techniques"] == ["localsgd"]
