"""A checkpoint resumes with another number of workers, without losing state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from running import run
from workers import resize as worker

from fleetx.fleet.saving.resized_checkpoint import combine

Held = list[dict[str, Any]]
"""What each worker of a job held and heard, by case."""


def start(folder: Path, workers: int, *ways: str) -> dict[str, Held]:
    run("resize.py", folder, *ways, workers=workers)
    found = [torch.load(folder / f"{rank}.pt") for rank in range(workers)]
    return {way: [each[way] for each in found] for way in found[0]}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Held]:
    two, three, one = (tmp_path_factory.mktemp(name) for name in ("two", "three", "one"))
    alone = worker.save(one)
    pair = start(two, 2, f"save:{two}", f"load:{one}")
    return {
        "two": pair["save"],
        "two to one": [worker.load(two)],
        "two to three": start(three, 3, f"load:{two}")["load"],
        "one": [alone],
        "one to two": pair["load"],
    }


def mean(job: Held, case: str, stage: str) -> dict[str, torch.Tensor]:
    states = [held[case][stage] for held in job]
    return {
        name: torch.stack([s[name].double() for s in states]).mean(0).to(states[0][name].dtype)
        for name in states[0]
    }


@pytest.mark.parametrize("to", ["two to one", "two to three"])
@pytest.mark.parametrize("case", list(worker.CASES))
def test_two_workers_become_others(jobs: dict[str, Held], case: str, to: str) -> None:
    expected = mean(jobs["two"], case, "saved")
    job = jobs[to]
    for held in job:
        loaded = held[case]["loaded"]
        for name, value in loaded.items():
            if name.endswith("momentum_buffer") and "dgc" in case and len(job) == 1:
                continue  # looked at below
            torch.testing.assert_close(value, expected[name], msg=f"{case} {name}")
        # Nothing is left out but what one worker has no place for.
        missing = set(expected) - set(loaded)
        assert all(name.endswith("held_back") for name in missing)
        assert not missing or len(job) == 1
    said = job[0][case]["said"]
    assert any("written by 2 workers" in text and "random" in text for text in said)


@pytest.mark.parametrize("case", ["localsgd", "adaptive", "outer"])
def test_what_is_loaded_is_what_a_synchronisation_gives(jobs: dict[str, Held], case: str) -> None:
    first, second = (held[case] for held in jobs["two"])
    names = [name for name in first["saved"] if name[0] in "012" and "momentum" not in name]
    assert any(not torch.equal(first["saved"][n], second["saved"][n]) for n in names)
    for to in ("two to one", "two to three"):
        for held in jobs[to]:
            for name in names:
                torch.testing.assert_close(held[case]["loaded"][name], first["synchronized"][name])
                assert torch.equal(first["synchronized"][name], second["synchronized"][name])


@pytest.mark.parametrize("case", ["dgc", "dgc keep_rate"])
def test_what_dgc_held_back_acts_on_one_worker_too(jobs: dict[str, Held], case: str) -> None:
    expected = mean(jobs["two"], case, "saved")
    loaded = jobs["two to one"][0][case]["loaded"]
    mu, rate = 0.75, 0.05 if "keep" in case else 1.0
    held_back = expected["0.held_back"] / rate
    assert held_back.abs().max() > 0
    # What an extra velocity adds over all later steps: its geometric series.
    extra = (loaded["0.momentum_buffer"] - expected["0.momentum_buffer"]) * mu / (1 - mu)
    torch.testing.assert_close(extra, held_back, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("case", list(worker.CASES))
def test_one_worker_becomes_two(jobs: dict[str, Held], case: str) -> None:
    (saved,) = (held[case]["saved"] for held in jobs["one"])
    for held in jobs["one to two"]:
        for name, value in saved.items():
            torch.testing.assert_close(held[case]["loaded"][name], value)
    assert jobs["one to two"][0][case]["said"] == []


@pytest.mark.parametrize("case", list(worker.CASES))
def test_they_go_on_together(jobs: dict[str, Held], case: str) -> None:
    for to in ("two to one", "two to three", "one to two"):
        first, *others = (held[case]["trained"] for held in jobs[to])
        weights = [name for name in first if name.endswith(("weight", "bias")) and "." in name]
        assert all(torch.isfinite(first[name]).all() for name in weights)
        for other in others:
            for name in weights:
                if not name.startswith("merged"):
                    assert torch.equal(other[name], first[name]), (to, name)


def test_random_states_come_from_one_old_worker(jobs: dict[str, Held]) -> None:
    found = [held["merge"]["random"] for held in jobs["two to three"]]
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[0] + 1)


def test_values_that_are_missing_or_of_another_kind() -> None:
    states = [
        {"a": {"x": torch.tensor([2.0]), "n": 1}, "list": [torch.ones(1), "s"], "b": None},
        {"a": {"x": None, "n": 2}, "list": [torch.zeros(1), "s"], "b": None},
    ]
    found = combine(states, 1)
    assert found.states["a"]["x"].tolist() == [1.0]
    assert found.states["list"][0].tolist() == [0.5]
    assert found.states["a"]["n"] == 2
    assert found.states["b"] is None
    assert (found.averaged, found.taken) == (["a.x", "list.0"], ["a.n"])
    assert "a.n cannot be averaged" in found.summary()
