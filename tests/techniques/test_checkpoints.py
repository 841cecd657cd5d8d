"""A break and a checkpoint change nothing, whatever the technique keeps."""

from __future__ import annotations

from typing import Any

import pytest
from running import run
from workers import checkpoints as worker


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run("checkpoints.py", tmp_path_factory.mktemp("checkpoints"))


@pytest.mark.parametrize("case", list(worker.CASES))
def test_resuming_gives_the_losses_of_the_whole_run(
    trained: list[dict[str, Any]], case: str
) -> None:
    for result in trained:
        assert result[case]["resumed"] == result[case]["whole"]
        assert len(result[case]["whole"]) == worker.STEPS - worker.BREAK


def test_loops_of_different_lengths_are_refused_with_localsgd(
    trained: list[dict[str, Any]],
) -> None:
    assert "localsgd" in trained[0]["join"]
    assert "equally many batches" in trained[0]["join"]
