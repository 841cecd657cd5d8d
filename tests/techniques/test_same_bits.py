"""Modules and programs train to the same bits, with every technique and legal combination."""

from __future__ import annotations

import os
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import same_bits as worker
from running import run
from test_composition import APART, is_refused_by_the_rule

pytestmark = pytest.mark.slow

LARGEST = int(os.environ.get("SAME_BITS_LARGEST", "2"))
"""Techniques in a combination at most; `make grid` compares triples too."""
JOBS = ["0 1", *(f"{part} 8" for part in range(8 if LARGEST > 2 else 0))]
"""The first job compares single techniques and pairs, each other one a part of the triples."""
DOCUMENTED = [
    "amp recompute", "recompute dgc", "recompute lars", "recompute lamb", "amp localsgd",
    "amp adaptive_localsgd", "amp lars", "amp lamb",
]  # fmt: skip

# What is rounded differently, and how far parameters may then be apart after all steps.
ROUNDED = {
    # Paddle 1.8.5 adds epsilon before the bias is corrected, which tells where gradients are tiny.
    "adam": 1e-3,
    # Betas are float32 in programs, and the correction of the bias is part of the rate.
    "adam of 2.x": 5e-7,
    # Gradients are divided by the loss scale after the sum over workers, in modules before it,
    # which is the same for powers of two only.
    "scale of no power of two": 2e-7,
    # Modules average parameters, programs their differences from a snapshot, as Paddle's do;
    # with an outer step or in half precision both do the latter.
    "plain average": 2e-7,
    "plain adaptive average": 2e-7,
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = [{}, {}]
    for i, part in enumerate(JOBS):
        folder = tmp_path_factory.mktemp("same_bits")
        found = run("same_bits.py", folder, "triples" if i else "others", *part.split())
        for result, more in zip(results, found, strict=True):
            result.update(more)
    return results


def legal(names: tuple[str, ...]) -> bool:
    return not any(frozenset(pair) in APART for pair in combinations(names, 2))


def test_every_legal_combination_has_the_same_bits(compared: list[dict[str, Any]]) -> None:
    every = [names for names in worker.combinations() if len(names) <= LARGEST]
    expected = {" ".join(names) for names in every if legal(names)}
    for result in compared:
        trained = {case for case, found in result.items() if "refused" not in found}
        assert trained == expected | set(worker.MORE) | set(worker.OPTIMIZERS)
        differing = {case for case in trained if "distance" in result[case]}
        assert differing == set(ROUNDED)


def test_each_is_refused_by_the_rule_or_leaves_workers_equal(
    compared: list[dict[str, Any]],
) -> None:
    assert set(DOCUMENTED) <= set(compared[0])
    for names in filter(lambda names: len(names) <= LARGEST, worker.combinations()):
        case = " ".join(names)
        first, second = (result[case] for result in compared)
        assert is_refused_by_the_rule(case, first, second), (case, first)
        if "refused" not in first and "localsgd" not in case:
            assert first["total"] == second["total"], case


@pytest.mark.parametrize("case", list(ROUNDED))
def test_what_is_rounded_differently_stays_near(compared: list[dict[str, Any]], case: str) -> None:
    assert all(0 < result[case]["distance"] < ROUNDED[case] for result in compared)


def test_a_nan_has_the_same_origin(compared: list[dict[str, Any]]) -> None:
    stopped = 0
    step = str(worker.STEPS + 1)
    for result in compared:
        for case, found in result.items():
            module, program = found.get("causes", ("", ""))
            if case == "finite loss":
                assert module == ["the gradient of 'b1'", None, step, "worker 1"]
                # After the sum nobody knows whose it was.
                assert program == ["the gradient of 'b1'", " of all workers together", step, None]
            else:
                assert module == program, case
                stopped += bool(module)
                assert module in ("", ["the loss", None, step, "worker 1"]), case
    assert stopped >= 10


def test_the_training_has_what_it_is_to_have(compared: list[dict[str, Any]]) -> None:
    losses = {case: np.array(found.get("losses")) for case, found in compared[0].items()}
    for result in compared:
        signs = np.sign(result["adaptive_localsgd"]["losses"])
        assert {-1.0, 1.0} <= set(signs)
    last = np.array(compared[1]["amp"]["losses"])
    assert not np.isfinite(last[list(worker.OVERFLOW)]).any()
    assert np.isfinite(last[max(worker.OVERFLOW) + 1 : worker.STEPS]).all()
    # The scale itself is too large for some of the batches, and fits most of them.
    for case in ("amp", "largest scale"):
        skipped = set(compared[0][case]["skipped"]) - {*worker.OVERFLOW, worker.STEPS}
        assert 0 < len(skipped) < worker.STEPS // 2, case
    # A technique that has no effect would agree with itself.
    for names in worker.SETTINGS:
        if names not in ("recompute", "stop_on_nan"):
            assert not np.array_equal(losses[names], losses["momentum"]), names
    np.testing.assert_array_equal(losses["recompute"], losses["momentum"])
    np.testing.assert_array_equal(losses["recompute lars"], losses["lars"])
