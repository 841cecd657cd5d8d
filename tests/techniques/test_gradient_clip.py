"""A clip of the strategy acts on the gradient of the update: merging changes nothing about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from running import run
from torch import nn
from workers import gradient_clip as worker

from fleetx import fleet
from fleetx.techniques.gradient_clip import Clip

pytestmark = pytest.mark.usefixtures("fresh_fleet")


@pytest.fixture(scope="module", params=[1, 2])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    return run(
        "gradient_clip.py", tmp_path_factory.mktemp(f"clip{request.param}"), workers=request.param
    )


def batches(workers: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what all workers are given: [update, part, worker, row, ...]."""
    rng = np.random.default_rng(3)
    shape = (worker.UPDATES, worker.K, workers, worker.ROWS)
    x, y = rng.standard_normal((*shape, worker.WIDTH)), rng.standard_normal((*shape, 1))
    return torch.tensor(x), torch.tensor(y)


def clip(parameters: Any, settings: dict[str, Any]) -> None:
    limits = settings.get("gradient_clip_configs", {})
    if "value" in limits:
        nn.utils.clip_grad_value_(parameters, limits["value"])
    elif limits:
        nn.utils.clip_grad_norm_(parameters, limits["norm"], limits.get("norm_type", 2.0))


def by_hand(settings: dict[str, Any], workers: int) -> list[list[float]]:
    """Train alone, each update with all that the workers have for it in one batch."""
    net = worker.Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.5)
    parts = worker.K if "gradient_merge" in settings else 1
    found = []
    for x, y in zip(*batches(workers), strict=True):
        optimizer.zero_grad()
        out = net(x[:parts].reshape(-1, worker.WIDTH))
        nn.functional.mse_loss(out, y[:parts].reshape(-1, 1)).backward()
        clip(net.parameters(), settings)
        optimizer.step()
        found.append(worker.values(net))
    return found


@pytest.mark.parametrize("case", list(worker.CASES))
def test_clipping_is_that_of_the_large_batch(trained: list[dict[str, Any]], case: str) -> None:
    if len(trained) == 1 and "hierarchical" in case:
        return  # there is nobody to divide into groups
    expected = by_hand(worker.CASES[case], len(trained))
    unclipped = by_hand({k: v for k, v in worker.CASES[case].items() if "clip" not in k}, 1)
    assert not np.allclose(expected, unclipped, rtol=1e-3)
    for result in trained:
        for kind in ("modules", "programs"):
            if case in result[kind]:
                np.testing.assert_allclose(result[kind][case], expected, rtol=1e-5, atol=1e-5)


def test_grad_clip_of_a_program_acts_on_the_merged_gradient(trained: list[dict[str, Any]]) -> None:
    for case in ("norm", "merge"):
        expected = by_hand(worker.CASES[case], len(trained))
        np.testing.assert_allclose(
            trained[0]["programs"][f"own {case}"], expected, rtol=1e-5, atol=1e-5
        )


def test_with_localsgd_each_worker_clips_its_own(trained: list[dict[str, Any]]) -> None:
    x, y = batches(len(trained))
    nets = [worker.Net() for _ in trained]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.5) for net in nets]
    for update in range(worker.UPDATES):
        for rank, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True)):
            optimizer.zero_grad()
            out = net(x[update, :, rank].reshape(-1, worker.WIDTH))
            nn.functional.mse_loss(out, y[update, :, rank].reshape(-1, 1)).backward()
            clip(net.parameters(), worker.CLIP)
            optimizer.step()
        if update % 2:
            for group in zip(*(net.parameters() for net in nets), strict=True):
                mean = torch.stack([p.detach() for p in group]).mean(0)
                for p in group:
                    p.data.copy_(mean)
        for rank, net in enumerate(nets):
            actual = trained[rank]["localsgd"][update]
            np.testing.assert_allclose(actual, worker.values(net), rtol=1e-9)


def test_a_flush_updates_with_what_was_merged(trained: list[dict[str, Any]]) -> None:
    x, y = batches(len(trained))
    net = worker.Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.5)
    expected = []
    for update, used in enumerate(([worker.K] * len(trained), [2, 1][: len(trained)])):
        rows = [x[update, :n, rank].reshape(-1, worker.WIDTH) for rank, n in enumerate(used)]
        wanted = [y[update, :n, rank].reshape(-1, 1) for rank, n in enumerate(used)]
        before = worker.values(net)
        optimizer.zero_grad()
        nn.functional.mse_loss(net(torch.cat(rows)), torch.cat(wanted)).backward()
        clip(net.parameters(), worker.CLIP)
        optimizer.step()
        after = worker.values(net)
        expected += [after, after] if update == 0 else [before, after, after]
    for rank, result in enumerate(trained):
        np.testing.assert_allclose(result["flush"]["values"], expected, rtol=1e-9)
        merging = [False] * (2 if rank == 0 else 1)
        assert result["flush"]["asked"] == [False, False, True, *merging, False]


def test_a_script_that_clips_while_gradients_are_merged_is_told_once(
    trained: list[dict[str, Any]],
) -> None:
    for result in trained:
        (text,) = result["told"]
        assert "strategy.gradient_clip = True" in text
        assert result["not told"] == []


def test_a_script_that_clips_a_part_of_the_model_is_told() -> None:
    fleet.init(is_collective=True)
    strategy = fleet.DistributedStrategy()
    strategy.gradient_merge, strategy.gradient_merge_configs = True, {"k_steps": 2}
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1), strategy)
    model = fleet.distributed_model(model)
    model(torch.ones(1, 2)).sum().backward()
    nn.utils.clip_grad_norm_(model[1].parameters(), 0.1)
    with pytest.warns(UserWarning, match=r"while gradient_merge accumulates those of 2 steps"):
        optimizer.step()


def test_sparse_gradients_are_clipped_as_dense_ones() -> None:
    def clipped(sparse: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Embedding(7, 3, sparse=sparse), nn.Linear(3, 2))
        model(torch.tensor([1, 4, 1, 6])).square().sum().backward()
        limit = Clip(norm=0.5)
        limit(dict(model.named_parameters()))
        assert limit.last_norm is not None
        assert limit.last_norm > 0.5
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        return [g.to_dense() if g.is_sparse else g for g in grads]

    for actual, expected in zip(clipped(True), clipped(False), strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    ("configs", "words"),
    [({}, "set one of them"), ({"norm": 1.0, "value": 1.0}, "norm=1 and value=1")],
)
def test_a_clip_has_one_limit(configs: dict[str, float], words: str) -> None:
    strategy = fleet.DistributedStrategy()
    strategy.gradient_clip = True
    strategy.gradient_clip_configs = configs
    fleet.init(is_collective=True, strategy=strategy)
    with pytest.raises(ValueError, match=words):
        fleet.distributed_model(nn.Linear(2, 2))


def test_what_cannot_be_clipped_is_refused() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.gradient_clip = strategy.dgc = True
    strategy.gradient_clip_configs = {"norm": 1.0}
    fleet.init(is_collective=True, strategy=strategy)
    with pytest.raises(ValueError, match="local_clip_norm"):
        fleet.distributed_model(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="has a grad_clip already"):
        worker.program(worker.CLIP, own_clip=True)
    with pytest.raises(ValueError, match="norm_type"):
        worker.program(worker.CASES["norm of order 1"])


def test_the_step_is_explained() -> None:
    _, optimizer = worker.make({**worker.CLIP, **worker.MERGE})
    rows = {row.technique: row for row in fleet.explain().rows}
    assert rows["gradient_clip"].settings == "norm to 0.25"
    assert rows["gradient_clip"].stage == "update"
    assert not optimizer.is_update_step
