"""`auto` under a limit of a worker's memory: it finds a way to divide the model that fits, and
trains as the same strategy does that is set by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from divided_models import Results, alone, assert_close, job, needs_torch
from running import run
from torch import nn
from workers import hybrid, pipeline

from fleetx.fleet.collective.auto_batch import Batch
from fleetx.fleet.collective.auto_layouts import Layouts, find_layouts

pytestmark = [pytest.mark.slow, needs_torch]
FITTING = {
    2: {"tensor_parallel 2", "pipeline 2"},
    4: {
        "tensor_parallel 4",
        "tensor_parallel 2 x sharding 3 of 2",
        "pipeline 4",
        "tensor_parallel 2 x pipeline 2",
    },
}


@pytest.fixture(scope="module", params=[2, 4])
def searched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder: Path = tmp_path_factory.mktemp("layouts")
    return run("auto_layouts.py", folder, workers=request.param)


@pytest.mark.parametrize("how", ["forward", "batches"])
def test_those_that_fit_are_measured_and_the_others_are_not(searched: Results, how: str) -> None:
    fitting = FITTING[len(searched)]
    if how == "forward":
        fitting = {name for name in fitting if "pipeline" not in name}
    for found in searched:
        each: dict[str, Any] = found[how]
        assert set(each["measured"]) == fitting
        assert each["choice"] in fitting
        assert each["choice"] == searched[0][how]["choice"]
        too_large = {n for n, note in each["notes"].items() if "more than worker_memory_mb" in note}
        assert {"as it is", "sharding 1", "sharding 2", "sharding 3"} <= too_large
        assert each["notes"].get("pipeline", "").startswith(
            "left out: a pipeline runs forward"
        ) == (how == "forward")


@pytest.mark.parametrize("how", ["forward", "batches"])
def test_the_choice_trains_as_it_does_by_hand(searched: Results, how: str) -> None:
    for rank, found in enumerate(searched):
        assert found[how]["found"] == found[how]["by hand"]
        assert found[how]["parts"] == [rank, len(searched)]


def test_every_way_trains_as_one_process(searched: Results) -> None:
    """A remembered choice, the same set by hand, and one process have the same parameters."""
    for place, source in enumerate((hybrid, pipeline)):
        expected = alone(source, "adamw")
        for found in searched:
            for name, trained in found["remembered"][place].items():
                assert trained["auto"] == trained["by hand"]
                assert_close(trained["auto"], expected)
                switched_on = {word.split()[0] for word in name.split(" x ")}
                assert set(trained["applied"]) == switched_on


def test_a_checkpoint_may_be_loaded_before_the_choice(searched: Results) -> None:
    """Parameters and optimizer state go to the workers that have them once the model is divided."""
    for place, source in enumerate((hybrid, pipeline)):
        for found in searched:
            each = found["resumed"][place]
            assert each["applied"] == [["tensor_parallel"], ["pipeline"]][place]
            (parameters, state), (after, state_after) = each["straight"], each["resumed"]
            assert_close(parameters, alone(source, "adamw"))
            assert_close(after, parameters)
            assert_close(state_after, state)


def test_workers_with_different_batches_do_not_compute_together(searched: Results) -> None:
    for found in searched:
        notes = found["uneven"]
        assert notes == searched[0]["uneven"]
        for name in ("tensor_parallel", "pipeline"):
            assert notes[name].startswith("left out: workers got batches of different shapes")
        assert "sharding 3" in notes
        assert not any("tensor_parallel 2" in name for name in notes)


class NeedsValues(nn.Module):
    tensor_parallel_plan = {"up": "colwise", "down": "rowwise"}

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.down(self.up(x))
        return outputs if x.sum().item() > 0 else -outputs


def layouts_of(model: nn.Module, workers: int = 4, **settings: Any) -> Layouts:
    batch = Batch(args=(torch.ones(8, 4),), targets=torch.ones(8, 4), loss_fn=nn.MSELoss())
    return find_layouts(model, batch, job(workers, **settings))


def test_a_model_that_needs_values_is_not_divided_by_layers() -> None:
    found = layouts_of(NeedsValues())
    assert {trial.candidate.name for trial in found.left_out} == {"tensor_parallel", "pipeline"}
    assert all("cannot be run without values" in trial.note for trial in found.left_out)
    assert {name for name, _ in found.ways} == {
        *(f"sharding {stage}" for stage in (1, 2, 3)),
        *(f"sharding {stage} of 2" for stage in (1, 2, 3)),
    }


def test_what_the_strategy_says_of_plans_and_micro_batches_counts() -> None:
    layers = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
    without = layouts_of(layers)
    assert [trial.candidate.name for trial in without.left_out] == ["tensor_parallel"]
    plan = ["0: colwise", "1: rowwise"]
    pieces = {"accumulate_steps": 2}
    given: dict[str, Any] = {"tensor_parallel_configs": {"plan": plan}, "pipeline_configs": pieces}
    found = layouts_of(layers, **given)
    assert not found.left_out
    ways = dict(found.ways)
    assert "pipeline_configs" not in ways["pipeline 2"]
    assert ways["tensor_parallel 4"]["hybrid_configs"] == {"joined_batches": True}
    adam = torch.optim.Adam(layers.parameters())
    whole = found.memory(job(4, **given), adam)
    assert whole.activations == found.figures.saved
    piped = found.memory(
        job(4, **{**given, **ways["pipeline 2"], "pipeline_configs": pieces}), adam
    )
    assert piped.activations == found.figures.saved  # two batches, in as many micro-batches


def test_a_model_for_which_nothing_fits_gets_a_sentence(searched: Results) -> None:
    for found in searched:
        text = found["too little"]
        assert text.startswith("auto_configs['worker_memory_mb'] is 5, and auto found no strategy")
        assert "needs the least" in text
        assert text.endswith("raise the limit, start more workers or take smaller batches.")
