"""LocalSGD's workers end equal after `synchronize`, and are warned if they do not call it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("synchronize")


@pytest.fixture(scope="module")
def trained(folder: Path) -> list[dict[str, Any]]:
    return run("synchronize.py", folder)


@pytest.mark.parametrize(
    "case",
    ["modules", "modules in half", "modules, saved", "programs", "programs, every_run"],
)
def test_all_workers_get_the_mean(trained: list[dict[str, Any]], case: str) -> None:
    first, second = (result[case] for result in trained)
    assert not np.allclose(first["before"], second["before"], rtol=1e-3)
    expected = np.mean([first["before"], second["before"]], axis=0)
    assert first["after"] == second["after"]
    np.testing.assert_allclose(first["after"], expected, atol=1e-3 if "half" in case else 1e-6)
    if "again" in first:
        assert first["again"] == first["after"]


def test_training_goes_on_from_there(trained: list[dict[str, Any]]) -> None:
    for case in ("modules", "modules in half"):
        first, second = (result[case]["trained on"] for result in trained)
        assert first != second  # local steps again


def test_workers_that_are_equal_anyway_are_left_alone(trained: list[dict[str, Any]]) -> None:
    for result in trained:
        case = result["modules, plain"]
        assert case["before"] == case["after"]


def test_a_worker_that_saves_alone_is_told_and_nobody_waits(trained: list[dict[str, Any]]) -> None:
    first, second = (result["programs"] for result in trained)
    assert [text.split()[0] for text in first["told"]] == [
        "fleet.save_persistables",
        "fleet.save_inference_model",
        "fleet.save_persistables",
    ]
    assert all("fleet.synchronize_model()" in text for text in first["told"])
    assert second["told"] == []
    assert first["not told"] == []
    assert first["loaded"] == second["after"]


@pytest.mark.parametrize("save", ["persistables", "inference_model", "save"])
def test_a_save_of_all_workers_averages_first(trained: list[dict[str, Any]], save: str) -> None:
    first, second = (result[f"all: {save}"] for result in trained)
    assert first["before"] != second["before"]
    assert first["after"] == second["after"]
    expected = np.mean([first["before"], second["before"]], axis=0)
    np.testing.assert_allclose(first["after"], expected, atol=1e-6)
    assert first["told"] == second["told"] == []
    assert first["files"]
    assert bool(second["files"]) == (save != "save")
    for held in (first, second):
        assert held.get("loaded", held["after"]) == held["after"]
    assert first["apart again"] != second["apart again"]
    assert first["averaged again"] == second["averaged again"]


def test_a_save_of_one_worker_changes_nothing(trained: list[dict[str, Any]]) -> None:
    plain, alone, late = (
        [result[case] for result in trained]
        for case in ("nobody", "only the first", "the last is late")
    )
    assert [len(held["told"]) for held in plain] == [0, 0]
    assert [len(held["told"]) for held in alone] == [1, 0]
    assert [len(held["told"]) for held in late] == [1, 1]
    for rank, held in enumerate(late):
        assert f"writes the parameters of worker {rank} only" in held["told"][0]
        assert "because not all workers called it within 0.2 s" in held["told"][0]
    assert plain[0]["trained on"] == plain[1]["trained on"]  # an average
    for held in (*alone, *late):
        assert held["trained on"] == plain[0]["trained on"]


def test_a_training_that_ends_between_two_averages_says_so(
    trained: list[dict[str, Any]], folder: Path
) -> None:
    text = (folder / "log" / "workerlog.0").read_text()
    assert text.count("the training ends 2 update(s) after the last average") == 1
    assert "fleet.synchronize_model()" in text
