"""Workers that divide the layers or the state of the stages of a pipeline train as one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from running import run
from test_hybrid import assert_close
from test_pipeline import alone, job
from workers import divided_stages as worker
from workers import pipeline

from fleetx import fleet
from fleetx.step.compose import choose
from fleetx.techniques.sharding_parameters import can_divide

pytestmark = pytest.mark.skipif(not can_divide(), reason="pipelines need PyTorch 2.7 or newer")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stages")


@pytest.fixture(scope="module")
def trained(folder: Path) -> list[dict[str, Any]]:
    return run("divided_stages.py", folder, workers=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", worker.ALIKE)
def test_workers_train_like_one_process(trained: list[dict[str, Any]], name: str) -> None:
    for result in trained:
        assert_close(result["alike"][name], alone("adamw"))


@pytest.mark.slow
@pytest.mark.parametrize("name", worker.WAYS)
def test_a_checkpoint_is_that_of_the_plain_module(
    trained: list[dict[str, Any]], name: str, folder: Path, fresh_fleet: None
) -> None:
    expected = alone("adamw")
    for result in trained:
        assert_close(result["saved"][name]["straight"], expected)
        assert_close(result["saved"][name]["resumed"], expected)
    # One worker goes on from the same files, by the same script.
    model, optimizer = pipeline.make(worker.WAYS[name], "adamw")
    fleet.load_checkpoint(str(folder / name), model=model, optimizer=optimizer)
    pipeline.train(model, optimizer, range(2, pipeline.STEPS))
    assert_close(pipeline.values(model), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", worker.WAYS)
def test_memory_is_explained_within_five_percent(trained: list[dict[str, Any]], name: str) -> None:
    whole = 4 * sum(
        p.numel() * p.element_size() for p in pipeline.network().parameters() if p.requires_grad
    )
    for result in trained:
        found = result["saved"][name]["memory"]
        assert whole + found["said"] == pytest.approx(found["held"], rel=0.05), found["table"]
        assert found["held"] < 0.6 * whole


@pytest.mark.slow
def test_workers_of_a_copy_need_the_same_batch(trained: list[dict[str, Any]]) -> None:
    for result in trained:
        assert result["other batches"].startswith("workers 0, 1, 2, 3 divide one copy of the model")


@pytest.mark.slow
def test_copies_of_divided_pipelines_train_like_one_process(tmp_path: Path) -> None:
    for result in run("divided_stages.py", tmp_path, workers=8):
        for name, (_, kind) in worker.EIGHT.items():
            assert_close(result[name], alone(kind))


def test_zero_bubble_and_divided_parameters_are_refused() -> None:
    given = job(4, **worker.divided(sharding=2, stage=3, schedule_mode="ZBVPP"))
    with pytest.raises(ValueError, match="set schedule_mode to 'VPP'"):
        choose(given)
