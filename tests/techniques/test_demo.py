"""DeMo against a reference in one process, whose transform is SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from running import run
from scipy.fft import dctn, idctn
from workers import compressed as worker

from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.kernels.cosine_blocks import Blocks
from fleetx.step.compose import choose
from fleetx.step.technique import Job, Sizes
from fleetx.techniques.demo import DecoupledMomentum


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run("compressed.py", tmp_path_factory.mktemp("demo"), "demo")


def parts_of(matrix: np.ndarray, size: int) -> list[tuple[slice, slice]]:
    """Return where the blocks of a matrix are."""
    height, width = (min(size, n) for n in matrix.shape)
    return [
        (slice(i, i + height), slice(j, j + width))
        for i in range(0, matrix.shape[0], height)
        for j in range(0, matrix.shape[1], width)
    ]


def sent_of(momentum: np.ndarray, size: int, top_k: int) -> np.ndarray:
    """Return what a worker sends of a momentum, as a matrix."""
    matrix = np.atleast_2d(momentum)
    height, width = (min(size, n) for n in matrix.shape)
    sent = np.zeros_like(matrix)
    for place in parts_of(matrix, size):
        block = np.zeros((height, width))
        own = matrix[place]
        block[: own.shape[0], : own.shape[1]] = own
        found = dctn(block, norm="ortho")
        least = np.sort(np.abs(found), axis=None)[-min(top_k, found.size)]
        found[np.abs(found) < least] = 0
        sent[place] = idctn(found, norm="ortho")[: own.shape[0], : own.shape[1]]
    return sent.reshape(momentum.shape)


@pytest.mark.parametrize("case", ["demo", "demo, values"])
def test_workers_follow_the_formula(trained: list[dict[str, Any]], case: str) -> None:
    settings = {"decay": 0.999, "sign": True, **worker.CASES[case]["demo_configs"]}
    values = [worker.first_weights().astype("float64"), np.zeros(worker.OUT)]
    momenta = [[np.zeros_like(v) for v in values] for _ in range(2)]
    for both in zip(worker.batches(0), worker.batches(1), strict=True):
        total = [np.zeros_like(v) for v in values]
        for rank, (x, y) in enumerate(both):
            w, b = (torch.tensor(v, requires_grad=True) for v in values)
            loss = ((torch.from_numpy(x).double() @ w + b - torch.from_numpy(y)) ** 2).mean()
            for i, gradient in enumerate(torch.autograd.grad(loss, [w, b])):
                momenta[rank][i] = settings["decay"] * momenta[rank][i] + gradient.numpy()
                sent = sent_of(momenta[rank][i], settings["block"], settings["top_k"])
                momenta[rank][i] -= sent
                total[i] += sent / 2
        for value, mean in zip(values, total, strict=True):
            value -= 0.05 * (np.sign(mean) if settings["sign"] else mean)
    for front in ("eager", "static"):
        found = trained[0][f"{front} {case}"]
        assert found["w"] == trained[1][f"{front} {case}"]["w"]  # the same bits
        np.testing.assert_allclose(found["w"], values[0].ravel(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["b"], values[1], rtol=1e-4, atol=1e-5)


def test_training_goes_on_from_a_checkpoint(trained: list[dict[str, Any]]) -> None:
    for result in trained:
        assert result["demo with a break, eager"] == result["eager demo"]
        assert result["demo with a break, static"] == result["static demo"]


@pytest.mark.parametrize("shape", [(7,), (10, 3), (64, 64), (130, 70), (8, 3, 3, 3), (), (1, 1)])
def test_all_coefficients_are_the_tensor(shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape, dtype=torch.float64)
    blocks = Blocks.of(shape, 64)
    coefficients = blocks.coefficients(tensor)
    assert coefficients.shape == (blocks.count, blocks.entries)
    torch.testing.assert_close(blocks.tensor(coefficients, tensor), tensor)


def test_coefficients_are_those_of_scipy() -> None:
    matrix = torch.randn(6, 5, dtype=torch.float64)
    found = Blocks.of((6, 5), 64).coefficients(matrix).view(6, 5)
    np.testing.assert_allclose(found, dctn(matrix.numpy(), norm="ortho"), atol=1e-12)


def test_one_worker_that_sends_everything_keeps_nothing() -> None:
    strategy = demo(top_k=10**6, sign=False)
    _, (technique,) = choose(Job(strategy=strategy, workers=2))
    sync = DecoupledMomentum(technique.config)
    gradient = torch.randn(5, 6)
    sync.prepare({"w": gradient})
    update = sync.mean({"w": gradient}, sync.state)
    torch.testing.assert_close(update["w"], gradient)
    torch.testing.assert_close(sync.state["w@DEMO_MOMENTUM"], torch.zeros(5, 6), atol=1e-6, rtol=0)


def demo(**settings: Any) -> DistributedStrategy:
    strategy = DistributedStrategy()
    strategy.demo = True
    strategy.demo_configs = settings
    return strategy


def test_costs() -> None:
    _, (technique,) = choose(Job(strategy=demo(top_k=4), workers=3))
    (row,) = technique.rows(Sizes(shapes=((128, 100), (10,))))
    assert row.bytes_sent == 2 * (4 * 4 * 6 + 4 * 6)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"decay": 1.0}, r'"decay"\] is 1.*below 1'),
        ({"block": 129}, r'"block"\] is 129.*at most 128'),
    ],
)
def test_settings_that_cannot_act_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        choose(Job(strategy=demo(**settings), workers=2))


def test_optimizers_with_a_momentum_are_refused() -> None:
    _, (technique,) = choose(Job(strategy=demo(), workers=2))
    layer = torch.nn.Linear(2, 2)
    technique.check_optimizer(torch.optim.SGD(layer.parameters(), lr=0.1))
    for optimizer in (
        torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9),
        torch.optim.Adam(layer.parameters()),
    ):
        with pytest.raises(ValueError, match=r"demo has the momentum.*use torch.optim.SGD without"):
            technique.check_optimizer(optimizer)
