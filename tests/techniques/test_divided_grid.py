"""Techniques train divided models as they train whole ones, or are refused before the first step.

Four workers divide a model in every way. One process is their peer; where copies of the model
exchange something else than whole gradients, as many workers as there are copies.
"""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from running import run
from safetensors.torch import load_file
from test_composition import APART
from workers import divided_grid as worker

from fleetx.techniques.sharding_parameters import can_divide
from waiting import LIMIT

pytestmark = [
    pytest.mark.slow,  # trains a hundred times on four workers
    pytest.mark.skipif(not can_divide(), reason="dividing layers needs PyTorch 2.7 or newer"),
]

LARGEST = int(os.environ.get("DIVIDED_GRID_LARGEST", "1"))
"""Techniques beside the division at most."""
ROUNDED = {
    # Messages in half precision have other sums if there are others to add.
    "fp16_allreduce": 2e-3,
}
SCALED = {"lars", "lamb"}
"""Updates by the norm of a layer: they make the gradient of a key's bias, which is nothing but
rounding, as large as others, so that this bias is not compared.

A bias c of the keys adds q·c to all scores of a query q, whichever key they belong to, and a
softmax does not change if all its inputs do by the same amount: softmax(q·(k + c)) = softmax(q·k),
over the keys k. What a model computes does not depend on c, so that its true gradient is zero: the
sum over k of the scores' gradients, which the Jacobian of the softmax makes 0, times q. In float64
it comes out as 1e-17 next to 1e-2 of other parameters (`test_a_bias_of_keys_changes_nothing`), and
as another 1e-17 if workers add up in another order.
"""
DIVIDED_LAYERS = {way for way in worker.WAYS if "tp2" in way or "shards 3" in way}
REFUSED = {
    "lars": DIVIDED_LAYERS,
    "lamb": DIVIDED_LAYERS,
    "dgc": DIVIDED_LAYERS,
    "signsgd": set(worker.WAYS),
    "powersgd": set(worker.WAYS),
    "demo": set(worker.WAYS),
}
"""Where a technique is refused by itself."""

Vectors = dict[str, torch.Tensor]


class Job:
    """What so many workers trained and refused."""

    def __init__(self, folder: Path, workers: int) -> None:
        limit = LIMIT * LARGEST**2
        self.refused: list[dict[str, str]] = run(
            "divided_grid.py", folder, str(LARGEST), workers=workers, limit=limit
        )
        self.trained = [load_file(folder / f"{rank}.safetensors") for rank in range(workers)]


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("divided"), 4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Vectors:
    """Return what whole models become, by case."""
    result: Vectors = {}
    for workers in 1, 2:
        result |= Job(tmp_path_factory.mktemp("whole"), workers).trained[0]
    return result


def test_a_bias_of_keys_changes_nothing() -> None:
    """What is left out of the comparison with `lars` and `lamb` is rounding, and has no effect."""
    model, ids = worker.hybrid.network(), worker.hybrid.batch(0)
    before = worker.hybrid.loss_of(model, ids)
    before.backward()
    keys = [p for name, p in model.named_parameters() if name.endswith("key.bias")]
    assert keys
    for parameter in keys:
        assert parameter.grad is not None
        assert parameter.grad.abs().max() < 1e-15
        parameter.data += 10 * torch.randn_like(parameter)
    others = [p for name, p in model.named_parameters() if name.endswith("query.bias")]
    assert all(p.grad is not None and p.grad.abs().max() > 1e-3 for p in others)
    assert abs(worker.hybrid.loss_of(model, ids).item() - before.item()) < 1e-13


def techniques_of(case: str) -> list[str]:
    return case.split(", ")[1:]


def compared(case: str) -> torch.Tensor:
    """Return a factor per element: 0 for those that differ without a meaning."""
    source = worker.WAYS[case.split(", ")[0]][0]
    leaves_out = not SCALED.isdisjoint(techniques_of(case))
    factors = [
        torch.full((tensor.numel(),), float(not (leaves_out and name.endswith("key.bias"))))
        for name, tensor in source.network().state_dict().items()
    ]
    return torch.cat(factors)


def test_divided_models_train_like_whole_ones(divided: Job, whole: Vectors) -> None:
    differ: dict[str, Any] = {}
    for trained in divided.trained:
        for case, found in trained.items():
            within = max((ROUNDED.get(name, 0.0) for name in techniques_of(case)), default=0.0)
            error = ((found - whole[case]) * compared(case)).abs().max().item()
            if not error <= max(within, 1e-10):
                differ[case] = error
    assert not differ


def test_others_are_refused_in_a_sentence_on_all_workers(divided: Job) -> None:
    first = divided.refused[0]
    assert all(refused == first for refused in divided.refused)
    for case, text in first.items():
        assert text.endswith("."), case
        assert any(word in text for word in ("switch off", "set ", "take ")), (case, text)


def is_refused(case: str) -> bool:
    way, *names = case.split(", ")
    apart = any(frozenset(pair) in APART for pair in combinations(names, 2))
    return apart or any(way in REFUSED.get(name, ()) for name in names)


def test_each_case_trains_or_is_refused_by_the_rule(divided: Job) -> None:
    cases = worker.cases(LARGEST, 4)
    assert set(divided.refused[0]) == {case for case in cases if is_refused(case)}
    assert set(divided.trained[0]) == {case for case in cases if not is_refused(case)}
