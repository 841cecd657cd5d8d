"""What `fleet.explain()` says of divided models is what is measured: bytes that arrive over TCP,
and the memory that a worker keeps."""

from __future__ import annotations

from typing import Any

import pytest
from divided_models import Results, needs_torch
from running import run
from workers import explained as worker

pytestmark = [pytest.mark.slow, needs_torch]  # trains dozens of times on two and four workers
CASES = [(workers, name) for workers, cases in worker.CASES.items() for name in cases]
IN_FLIGHT = {
    "stages": [2, 1],
    "stages, all forward first": [4, 4],
    "stages x copies": [2, 1, 2, 1],
    "stages x shards 1": [2, 2, 1, 1],
    "stages x shards 2": [2, 2, 1, 1],
    "4 stages": [4, 3, 2, 1],
}
"""Micro-batches of which each worker of a schedule keeps activations at a time."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Results]:
    # Bytes are counted where they pass through sockets.
    return {
        workers: run(
            "explained.py",
            tmp_path_factory.mktemp(f"explained by {workers}"),
            workers=workers,
            flags=["--backend", "gloo"],
        )
        for workers in worker.CASES
    }


@pytest.fixture(params=CASES, ids=[f"{name} ({workers})" for workers, name in CASES])
def found(request: pytest.FixtureRequest, measured: dict[int, Results]) -> list[dict[str, Any]]:
    workers, name = request.param
    return [result[name] for result in measured[workers]]


def test_a_step_sends_what_it_says(found: list[dict[str, Any]]) -> None:
    received = sum(each["received"] for each in found)
    assert sum(each["said"] for each in found) == pytest.approx(received, rel=0.05)


def test_what_is_sent_is_shown_by_dimension(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert sum(sent for *_, sent in each["messages"]) == pytest.approx(each["said"])


@pytest.mark.parametrize("name", ["layers x stages", "stages"])
def test_stages_send_what_is_between_them(measured: dict[int, Results], name: str) -> None:
    workers = 4 if "layers" in name else 2
    between = worker.BATCH * worker.LENGTH * 8 * 8  # the last dimension, in float64
    for result in measured[workers]:
        assert ["pp", "activations", between] in result[name]["messages"]


def test_a_worker_keeps_what_it_says(found: list[dict[str, Any]]) -> None:
    for each in found:
        for what in ("parameters", "gradients", "state"):
            assert each["held"][what] == pytest.approx(each[what], rel=0.05), each["table"]
            assert each["held before"][what] == pytest.approx(each[what], rel=0.05)


@pytest.mark.parametrize(("workers", "name"), [each for each in CASES if "stages" not in each[1]])
def test_forward_keeps_what_it_says(measured: dict[int, Results], workers: int, name: str) -> None:
    for each in (result[name] for result in measured[workers]):
        assert each["held"]["activations"] == pytest.approx(each["activations"], rel=0.05)


@pytest.mark.parametrize("name", IN_FLIGHT)
def test_stages_keep_the_micro_batches_that_are_under_way(
    measured: dict[int, Results], name: str
) -> None:
    workers = len(IN_FLIGHT[name])
    for result, count in zip(measured[workers], IN_FLIGHT[name], strict=True):
        one, shared = result[name]["activations"]
        expected = count * one + shared
        assert result[name]["held"]["activations"] == pytest.approx(expected, rel=0.05)


def test_what_is_not_known_yet_is_said(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert each["held before"]["activations"] is None
        assert "?: known after the next training step" in each["before"]
        assert "?" not in each["table"]


def test_only_the_first_step_counts(found: list[dict[str, Any]]) -> None:
    for each in found:
        before, *later = each["hooks"]
        assert before or each["is cut"]
        assert not any(later)
