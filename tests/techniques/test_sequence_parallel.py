"""Models whose sequences and losses are divided between workers are trained as by one process."""

from __future__ import annotations

import pytest
from divided_models import Results, alone, assert_close, job, job_fixtures, needs_torch
from workers import sequence_parallel as worker

from fleetx.step.compose import choose
from fleetx.techniques.tensor_parallel_plan import find_plan
from fleetx.techniques.tensor_parallel_sequence import SEQUENCE_STYLES

folder, trained = job_fixtures("sequence_parallel.py")


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("name", worker.CASES)
def test_workers_train_like_one_process(trained: Results, name: str) -> None:
    expected = alone(worker, "momentum", worker.CASES[name][1])
    for result in trained:
        assert_close(result["alike"][name], expected)


@needs_torch
@pytest.mark.slow
def test_a_clip_counts_every_gradient_once(trained: Results) -> None:
    for result in trained:
        assert_close(result["clipped"][1], result["clipped"][0])


@needs_torch
@pytest.mark.slow
def test_sequences_that_cannot_be_divided_are_refused(trained: Results) -> None:
    for result in trained:
        assert "'blocks.0' gets a tensor of shape (8, 5, 8)" in result["odd"]


def test_a_plan_has_what_was_asked_for() -> None:
    model = worker.network()
    assert set(find_plan(model).values()) == {"colwise", "rowwise", "embedding", "gathered"}
    plan = find_plan(model, sequence_parallel=True, loss_parallel=True)
    assert plan["blocks.0"] == "split"
    assert plan["head"] == "vocabulary"


@pytest.mark.parametrize(
    ("lines", "asked", "words"),
    [
        (["head: colwise"], "sequence_parallel", "does not say between which modules"),
        (
            ["blocks.0: split", "norm: joined", "blocks.*.mlp: whole"],
            "sequence_parallel",
            "how 'blocks.0.norm_1.weight' computes on a part",
        ),
        (
            ["blocks.0: split", "norm: joined", "blocks.*.norm_*: sequence", "*.mlp: whole"]
            + ["*.attention: whole"],
            "sequence_parallel",
            "how 'blocks.0.attention.query.weight' computes on a part",
        ),
        (["words: embedding"], "loss_parallel", "has no layer before the loss"),
    ],
)
def test_plans_that_cannot_be_followed(lines: list[str], asked: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"'{asked}'.* is True") as caught:
        find_plan(worker.network(), lines, **{asked: True})
    assert words in str(caught.value)


@pytest.mark.parametrize("style", SEQUENCE_STYLES)
def test_styles_of_parts_are_refused_where_sequences_are_whole(style: str) -> None:
    line = f"blocks.0: {style}"
    with pytest.raises(
        ValueError, match="'sequence_parallel'.* is False: set it to True"
    ) as caught:
        find_plan(worker.network(), ["head: gathered", line])
    assert f"tensor_parallel_configs['plan'] has {line!r}" in str(caught.value)


def test_so_they_are_before_a_model_is_there() -> None:
    settings = worker.layers(plan={"blocks.0": "split", "head": "gathered"})
    with pytest.raises(ValueError, match="'blocks.0: split', but 'split' acts on parts"):
        choose(job(2, **settings))
