"""Models whose sequences and losses are divided between workers are trained as by one process."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from running import run
from test_hybrid import assert_close
from workers import sequence_parallel as worker

from fleetx.techniques.sharding_parameters import can_divide
from fleetx.techniques.tensor_parallel_plan import find_plan

needs_torch = pytest.mark.skipif(not can_divide(), reason="dividing needs PyTorch 2.7 or newer")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    models = "families" if find_spec("transformers") else "own"
    return run("sequence_parallel.py", tmp_path_factory.mktemp("parts"), models, workers=4)


def alone(kind: str) -> dict[str, Any]:
    """Return the parameters that one process gets on whole batches, by torch alone."""
    model = worker.network(kind)
    optimizer = worker.OPTIMIZERS["momentum"](model.parameters())
    for step in range(worker.STEPS):
        optimizer.zero_grad()
        ids = worker.batch(step)
        is_own = kind not in worker.FAMILIES
        loss = model.loss_fn(model(ids), ids) if is_own else model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
    return worker.values(model)


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("name", worker.CASES)
def test_workers_train_like_one_process(trained: list[dict[str, Any]], name: str) -> None:
    kind = worker.CASES[name][1]
    if kind in worker.FAMILIES:
        pytest.importorskip("transformers")
    expected = alone(kind)
    for result in trained:
        # Transformers computes its norms and losses in single precision.
        assert_close(result["alike"][name], expected, 1e-6 if kind in worker.FAMILIES else 1e-10)


@needs_torch
@pytest.mark.slow
def test_a_clip_counts_every_gradient_once(trained: list[dict[str, Any]]) -> None:
    for result in trained:
        assert_close(result["clipped"][1], result["clipped"][0])


@needs_torch
@pytest.mark.slow
def test_sequences_that_cannot_be_divided_are_refused(trained: list[dict[str, Any]]) -> None:
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
        (["words: embedding"], "loss_parallel", "has no layer before the loss"),
    ],
)
def test_plans_that_cannot_be_followed(lines: list[str], asked: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"'{asked}'.* is True") as caught:
        find_plan(worker.network(), lines, **{asked: True})
    assert words in str(caught.value)
