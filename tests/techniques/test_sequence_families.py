"""Models of `transformers` and of our applications, whose sequences workers divide, are trained as
by one process."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from running import run
from test_hybrid import assert_close
from workers import sequence_families as worker

from fleetx.techniques.sharding_parameters import can_divide

pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.slow,  # trains dozens of times on four workers
    pytest.mark.skipif(not can_divide(), reason="dividing needs PyTorch 2.7 or newer"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run("sequence_families.py", tmp_path_factory.mktemp("families"), workers=4)


@cache
def alone(kind: str, dropout: float) -> tuple[dict[str, Any], float]:
    """Return the parameters that one process gets on whole batches, by torch alone, and a loss."""
    model = worker.network(kind, dropout)
    loss = worker.train(kind, model, worker.OPTIMIZERS["momentum"](model.parameters()))
    return worker.values(model), loss


@pytest.mark.parametrize("name", worker.CASES)
def test_workers_train_like_one_process(trained: list[dict[str, Any]], name: str) -> None:
    expected, loss = alone(*worker.CASES[name][1:])
    for result in trained:
        found = result["alike"][name]
        assert_close(found["values"], expected)
        assert found["loss"] == pytest.approx(loss, abs=1e-10)


@pytest.mark.parametrize("kind", worker.HARD)
def test_lengths_that_cannot_be_divided_are_refused(
    trained: list[dict[str, Any]], kind: str
) -> None:
    for result in trained:
        text = result["odd"][kind]
        assert "gets a tensor of shape (8, 5, 8)" in text
        assert text.endswith("set sequence_parallel to False.")


@pytest.mark.parametrize("kind", ["t5", "translation"])
def test_so_are_those_of_a_decoder(trained: list[dict[str, Any]], kind: str) -> None:
    for result in trained:
        assert "decoder" in result["odd target"][kind]
        assert "gets a tensor of shape (8, 3, 8)" in result["odd target"][kind]
