"""`auto` under a limit of a worker's memory: it finds a way to divide the model that fits, and
trains as the same strategy does that is set by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from divided_models import Results, alone, assert_close, needs_torch
from running import run
from workers import hybrid, pipeline

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


def test_a_model_for_which_nothing_fits_gets_a_sentence(searched: Results) -> None:
    for found in searched:
        text = found["too little"]
        assert text.startswith("auto_configs['worker_memory_mb'] is 5, and auto found no strategy")
        assert "needs the least" in text
        assert text.endswith("raise the limit, start more workers or take smaller batches.")
