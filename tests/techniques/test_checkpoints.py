"""A break and a checkpoint change nothing, whatever the technique keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from running import run
from workers import checkpoints as worker

from fleetx.step.stages import GradientSync
from fleetx.techniques.gradient_merge import MergedGradients


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


class RowGradients(GradientSync):
    """Keeps gradients beside those of the parameters, as tables on servers do."""

    def others(self) -> list[torch.Tensor]:
        return [torch.ones(2, 3)]


def test_merged_gradients_of_rows_are_not_left_out_of_a_checkpoint() -> None:
    merged = MergedGradients(RowGradients(), 2, avg=True, gather=lambda value: [value])
    parameter = torch.nn.Parameter(torch.ones(2))
    assert merged.state_dict()["count"] == 0
    parameter.grad = torch.ones(2)
    assert not merged.collect({"w": parameter})
    with pytest.raises(ValueError, match=r"k_steps=2 .* SparseEmbedding rows over 1 step"):
        merged.state_dict()
    parameter.grad = torch.ones(2)
    assert merged.collect({"w": parameter})
    assert merged.state_dict()["count"] == 0
