"""Every technique and triple of techniques trains on two workers or is refused in a sentence.

Pairs are trained, and their refusals looked at, in `test_same_bits.py`.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import pytest
from running import run

# Pairs that replace the same stage, or of which one has nothing to act on.
APART = {
    frozenset(pair.split())
    for pair in (
        "lars lamb", "lars dgc", "lamb dgc", "dgc localsgd", "dgc adaptive_localsgd",
        "localsgd adaptive_localsgd", "dgc fp16_allreduce", "dgc gradient_clip",
        "dgc signsgd", "localsgd signsgd", "adaptive_localsgd signsgd", "fp16_allreduce signsgd",
        "dgc powersgd", "localsgd powersgd", "adaptive_localsgd powersgd",
        "fp16_allreduce powersgd", "signsgd powersgd",
        "demo dgc", "demo localsgd", "demo adaptive_localsgd", "demo fp16_allreduce",
        "demo signsgd", "demo powersgd", "demo lars", "demo lamb",
    )
}  # fmt: skip
DOCUMENTED = ["amp recompute lars", "amp recompute lamb"]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run("composition.py", tmp_path_factory.mktemp("composition"))


@pytest.fixture(params=["eager", "static"])
def walked(request: pytest.FixtureRequest, job: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [result[request.param] for result in job]


def is_refused_by_the_rule(names: str, first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether both workers refuse a combination in one sentence exactly if two techniques of it
    are apart, which the sentence names."""
    apart = [pair for pair in combinations(names.split(), 2) if frozenset(pair) in APART]
    text = first.get("refused", "")
    if not apart:
        return not text
    named = any(a in text and b in text for a, b in apart)
    return named and "switch off" in text and text == second.get("refused")


def test_all_of_them_were_walked(walked: list[dict[str, Any]]) -> None:
    assert len(walked[0]) == math.comb(14, 1) + math.comb(9, 3)
    assert set(DOCUMENTED) <= set(walked[0])


def test_each_trains_or_is_refused_by_the_rule(walked: list[dict[str, Any]]) -> None:
    for names, first in walked[0].items():
        assert is_refused_by_the_rule(names, first, walked[1][names]), (names, first)
        assert all(map(math.isfinite, first.get("losses", ()))), names


def test_workers_that_trained_together_end_equal(walked: list[dict[str, Any]]) -> None:
    for names, first in walked[0].items():
        if "losses" in first and "localsgd" not in names:
            assert first["total"] == walked[1][names]["total"], names


def test_techniques_change_what_they_should(walked: list[dict[str, Any]]) -> None:
    def losses(names: str) -> list[float]:
        found: list[float] = walked[0][names]["losses"]
        return found

    assert losses("gradient_merge")[1] != losses("fp16_allreduce")[1]  # no update after one step
    assert losses("dgc")[2] != losses("fp16_allreduce")[2]
    assert losses("amp")[1] == pytest.approx(losses("fp16_allreduce")[1], rel=2e-2)
