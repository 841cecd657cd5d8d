"""Workers that divide the layers or the state of the stages of a pipeline train as one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from divided_models import (
    Results,
    alone,
    assert_close,
    assert_resumed,
    bytes_to_train,
    job,
    job_fixtures,
    needs_torch,
)
from running import run
from workers import divided_stages as worker
from workers import pipeline

from fleetx.step.compose import choose

pytestmark = needs_torch
folder, trained = job_fixtures("divided_stages.py")


@pytest.mark.slow
@pytest.mark.parametrize("name", worker.ALIKE)
def test_workers_train_like_one_process(trained: Results, name: str) -> None:
    for result in trained:
        assert_close(result["alike"][name], alone(pipeline, "adamw"))


@pytest.mark.slow
@pytest.mark.parametrize("name", worker.WAYS)
def test_a_checkpoint_is_that_of_the_plain_module(
    trained: Results, name: str, folder: Path, fresh_fleet: None
) -> None:
    saved = [result["saved"][name] for result in trained]
    expected = alone(pipeline, "adamw")
    assert_resumed(saved, pipeline.PAIR, worker.WAYS[name], folder / name, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", worker.WAYS)
def test_memory_is_explained_within_five_percent(trained: Results, name: str) -> None:
    whole = bytes_to_train(pipeline.network())
    for result in trained:
        found = result["saved"][name]["memory"]
        assert whole + found["said"] == pytest.approx(found["held"], rel=0.05), found["table"]
        assert found["held"] < 0.6 * whole


@pytest.mark.slow
def test_workers_of_a_copy_need_the_same_batch(trained: Results) -> None:
    for result in trained:
        assert result["other batches"].startswith("workers 0, 1, 2, 3 divide one copy of the model")


@pytest.mark.slow
def test_copies_of_divided_pipelines_train_like_one_process(tmp_path: Path) -> None:
    for result in run("divided_stages.py", tmp_path, workers=8):
        for name, (_, kind) in worker.EIGHT.items():
            assert_close(result[name], alone(pipeline, kind))


def test_zero_bubble_and_divided_parameters_are_refused() -> None:
    given = job(4, **worker.divided(sharding=2, stage=3, schedule_mode="ZBVPP"))
    with pytest.raises(ValueError, match="set schedule_mode to 'VPP'"):
        choose(given)
