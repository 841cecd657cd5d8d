"""Models of `transformers` and of our applications, whose sequences workers divide, are trained as
by one process."""

from __future__ import annotations

from functools import cache

import pytest
from divided_models import OPTIMIZERS, Results, Values, assert_close, job_fixtures, needs_torch
from workers import sequence_families as worker

pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.slow,  # trains dozens of times on four workers
    needs_torch,
]
folder, trained = job_fixtures("sequence_families.py")


@cache
def alone(kind: str, dropout: float) -> tuple[Values, float]:
    """Return the parameters that one process gets on whole batches, by torch alone, and a loss."""
    model = worker.network(kind, dropout)
    loss = worker.train(kind, model, OPTIMIZERS["momentum"](model.parameters()))
    return worker.values(model), loss


@pytest.mark.parametrize("name", worker.CASES)
def test_workers_train_like_one_process(trained: Results, name: str) -> None:
    expected, loss = alone(*worker.CASES[name][1:])
    for result in trained:
        found = result["alike"][name]
        assert_close(found["values"], expected)
        assert found["loss"] == pytest.approx(loss, abs=1e-10)


@pytest.mark.parametrize("kind", worker.HARD)
def test_lengths_that_cannot_be_divided_are_refused(trained: Results, kind: str) -> None:
    for result in trained:
        text = result["odd"][kind]
        assert "gets a tensor of shape (8, 5, 8)" in text
        assert text.endswith("set sequence_parallel to False.")


@pytest.mark.parametrize("kind", ["t5", "translation"])
def test_so_are_those_of_a_decoder(trained: Results, kind: str) -> None:
    for result in trained:
        assert "decoder" in result["odd target"][kind]
        assert "gets a tensor of shape (8, 3, 8)" in result["odd target"][kind]
