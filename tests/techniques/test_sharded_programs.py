"""Programs whose optimizer state is divided train as one worker trains them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from divided_models import assert_close
from running import run
from workers import sharded_programs as worker

pytestmark = pytest.mark.slow  # trains dozens of times on two workers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharded_programs")


@pytest.fixture(scope="module")
def trained(folder: Path) -> list[dict[str, Any]]:
    return run("sharded_programs.py", folder)


@pytest.mark.parametrize("name", worker.CASES)
def test_workers_train_like_one(
    trained: list[dict[str, Any]], name: str, fresh_fleet: None
) -> None:
    _, kind, more = worker.CASES[name]
    expected = worker.Training(more, kind).train().values()
    for result in trained:
        assert_close(result["values"][name], expected)


def test_the_program_shows_what_runs(trained: list[dict[str, Any]]) -> None:
    for result in trained:
        first, second = result["ops"]["stage 1, adam"], result["ops"]["stage 2, adam"]
        assert (first.count("c_allreduce_sum"), first.count("c_reduce_sum")) == (6, 0)
        assert (second.count("c_allreduce_sum"), second.count("c_reduce_sum")) == (0, 6)
        assert first.count("c_broadcast") == second.count("c_broadcast") == 6
    counts = [result["ops"]["stage 2, adam"].count("adam") for result in trained]
    assert sum(counts) == 6
    assert min(counts) > 0


def test_state_is_divided(trained: list[dict[str, Any]]) -> None:
    for name in ("stage 1, adam", "stage 2, adam"):
        first, second = (set(result["state"][name]) for result in trained)
        assert not first & second
        assert len(first | second) == 12


def test_all_workers_together_save_everything(
    trained: list[dict[str, Any]], folder: Path, fresh_fleet: None
) -> None:
    _, kind, more = worker.CASES[worker.SAVED]
    expected = worker.Training(more, kind).train().values()
    for result in trained:
        assert_close(result["saved"]["values"], expected)
        assert "leave filename out" in result["saved"]["refused"]
    # One worker goes on from the files that both have written.
    alone = worker.Training(more, kind)
    with worker.fluid.scope_guard(alone.scope):
        worker.fluid.io.load_persistables(alone.exe, str(folder / "saved"), alone.main)
    assert_close(alone.train(range(2, worker.STEPS)).values(), expected)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stage 3", "set it to 2, or train a torch.nn.Module"),
        ("clip", "the clip of gradients looks at all of them: set it to 1"),
        ("amp", "amp with a loss scale looks at all of them: set it to 1"),
        ("localsgd", "which acts between copies of the model"),
        ("copies", "leaves 2 copies of the model"),
    ],
)
def test_what_is_refused(trained: list[dict[str, Any]], name: str, words: str) -> None:
    for result in trained:
        assert words in result["refusals"][name]
