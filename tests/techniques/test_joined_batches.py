"""`hybrid_configs["joined_batches"]`: workers that divide a copy bring different samples, and train
like as many copies."""

from __future__ import annotations

import pytest
import torch
from divided_models import Results, alone, assert_close, job, job_fixtures, needs_torch
from workers import hybrid, pipeline
from workers.joined_batches import LAYERS, STAGES

from fleetx.step.compose import choose

pytestmark = [pytest.mark.slow, needs_torch]
folder, trained = job_fixtures("joined_batches.py")


@pytest.mark.parametrize("case", LAYERS)
def test_divided_layers_train_on_the_samples_of_all_workers(trained: Results, case: str) -> None:
    for found in trained:
        assert_close(found["layers"][case], alone(hybrid, LAYERS[case][1]))


@pytest.mark.parametrize("case", STAGES)
def test_pipelines_train_on_the_samples_of_all_workers(trained: Results, case: str) -> None:
    for found in trained:
        assert_close(found["stages"][case], alone(pipeline, STAGES[case][1]))


def test_every_worker_has_its_part_of_the_data(trained: Results) -> None:
    assert [found["parts"] for found in trained] == [[rank, 4] for rank in range(4)]


def test_a_worker_gets_the_outputs_of_its_samples(trained: Results) -> None:
    """Losses may take different outputs on each worker; scalars are those of all samples."""
    for found in trained:
        outputs, copies = found["outputs"], found["outputs of copies"]
        assert outputs["shape"] == copies["shape"] == [2, 2]
        assert_close(outputs["values"], copies["values"])
    for first, second in (trained[:2], trained[2:]):
        own = [each["outputs of copies"]["loss"] for each in (first, second)]
        for each in (first, second):
            assert each["outputs"]["loss"] == pytest.approx(sum(own) / 2, abs=1e-12)


def test_workers_of_a_copy_draw_the_same_dropout_but_different_samples(trained: Results) -> None:
    for first, second in (trained[:2], trained[2:]):
        assert first["dropout"]["last"] == second["dropout"]["last"]
    for rank, found in enumerate(trained):
        generator = torch.Generator().manual_seed(rank)
        assert found["dropout"]["drawn"] == torch.rand((), generator=generator).item()


def test_what_cannot_be_joined_is_said(trained: Results) -> None:
    for found in trained:
        assert "batches have different shapes" in found["refused"]["shapes"]
        assert "drop_last=True" in found["refused"]["shapes"]
        assert "not that of the 4 samples" in found["refused"]["outputs"]
    configs = {"tensor_parallel_degree": 2, "loss_parallel": True}
    settings = {"tensor_parallel": True, "tensor_parallel_configs": configs}
    with pytest.raises(ValueError, match=r"joined_batches.*loss_parallel.*set one of them"):
        choose(job(**settings, hybrid_configs={"joined_batches": True}))
