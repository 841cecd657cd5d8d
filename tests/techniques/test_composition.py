"""Every pair and triple of techniques trains on two workers or is refused in a sentence."""

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
DOCUMENTED = [
    "amp recompute", "recompute dgc", "recompute lars", "recompute lamb", "amp localsgd",
    "amp adaptive_localsgd", "amp lars", "amp lamb", "amp recompute lars", "amp recompute lamb",
]  # fmt: skip
MORE = [
    "amp dgc",
    "recompute localsgd",
    "lars localsgd",
    "lamb localsgd",
    "gradient_merge localsgd",
]


@pytest.fixture(scope="module", params=["eager", "static"])
def walked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    return run("composition.py", tmp_path_factory.mktemp(request.param), request.param)


def test_all_of_them_were_walked(walked: list[dict[str, Any]]) -> None:
    assert len(walked[0]) == math.comb(14, 1) + math.comb(14, 2) + math.comb(9, 3)
    assert set(DOCUMENTED) | set(MORE) <= set(walked[0])


def test_each_trains_or_is_refused_by_the_rule(walked: list[dict[str, Any]]) -> None:
    wrong = []
    for names, first in walked[0].items():
        second = walked[1][names]
        parts = names.split()
        apart = [pair for pair in combinations(parts, 2) if frozenset(pair) in APART]
        if apart:
            text = first.get("refused", "")
            named = any(a in text and b in text for a, b in apart)
            good = named and "switch off" in text and text == second.get("refused")
        else:
            good = "losses" in first and all(map(math.isfinite, first["losses"]))
        if not good:
            wrong.append((names, first))
    assert not wrong


def test_workers_that_trained_together_end_equal(walked: list[dict[str, Any]]) -> None:
    for names, first in walked[0].items():
        if "losses" in first and "localsgd" not in names:
            assert first["total"] == walked[1][names]["total"], names


def test_techniques_change_what_they_should(walked: list[dict[str, Any]]) -> None:
    def losses(names: str) -> list[float]:
        found: list[float] = walked[0][names]["losses"]
        return found

    assert losses("recompute lars") == losses("lars")  # only memory
    assert losses("gradient_merge")[1] != losses("fp16_allreduce")[1]  # no update after one step
    assert losses("dgc")[2] != losses("fp16_allreduce")[2]
    assert losses("amp")[1] == pytest.approx(losses("fp16_allreduce")[1], rel=2e-2)
