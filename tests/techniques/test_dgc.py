"""Deep gradient compression: the selection, the schedule, and training with two workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from running import run
from workers import dgc as worker

from fleetx.kernels.compression import (
    SparsitySchedule,
    add_entries,
    entries,
    largest,
    update_entries,
)


@pytest.mark.parametrize("elements", [100, 2**16, 2**17 + 3])
@pytest.mark.parametrize("share", [0.999, 0.9, 0.5])
def test_the_largest_entries_are_found_exactly(elements: int, share: float) -> None:
    values = torch.randn(elements, generator=torch.Generator().manual_seed(elements))
    count = entries(elements, share)
    found = largest(values, count)
    assert found.unique().numel() == count
    expected = values.abs().topk(count).values.sort().values
    assert torch.equal(values[found].abs().sort().values, expected)


def test_the_largest_entries_among_equal_ones() -> None:
    values = torch.zeros(2**17)
    values[:10] = 3.0
    found = largest(values, 100)
    assert found.numel() == found.unique().numel() == 100
    assert set(range(10)) <= set(found.tolist())


def test_the_schedule_goes_through_its_sparsities() -> None:
    schedule = SparsitySchedule(begin=10, ramp=100, sparsities=(0.75, 0.9375, 0.98, 0.99, 0.999))
    assert schedule.at(9) == 0.0
    assert [schedule.at(10 + 20 * i) for i in range(6)] == [0.75, 0.9375, 0.98, 0.99, 0.999, 0.999]
    assert schedule.at(29) == 0.75


@pytest.mark.parametrize(
    "wrong", [{"sparsities": (1.0,)}, {"begin": -1}, {"ramp": 0}, {"sparsities": (0.9, 0.0)}]
)
def test_wrong_schedules_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="dgc"):
        SparsitySchedule(**wrong)


def simulated(
    configs: dict[str, Any], *, nesterov: bool, decay: float, falls: float = 1.0
) -> np.ndarray:
    """Return the weights that two workers reach, by the formulas and a plain sort."""
    schedule = SparsitySchedule(
        begin=configs.get("rampup_begin_step", 0),
        ramp=configs.get("rampup_step", 1),
        sparsities=tuple(configs["sparsity"]),
    )
    w = torch.from_numpy(worker.first_weights())
    b = torch.zeros(worker.SIZE)
    u, v, b_velocity = torch.zeros(2, *w.shape), torch.zeros(2, *w.shape), torch.zeros_like(b)
    mu = 0.9
    for step, shares in enumerate(zip(worker.batches(0, 2), worker.batches(1, 2), strict=True)):
        rate = 0.5 * falls**step
        held_back, sent = (rate, 1.0) if configs.get("keep_rate") else (1.0, rate)
        grads = []
        for x, y in shares:
            wanted = w.clone().requires_grad_(), b.clone().requires_grad_()
            out = torch.from_numpy(x) @ wanted[0] + wanted[1]
            loss = ((out - torch.from_numpy(y)) ** 2).mean()
            grads.append(torch.autograd.grad(loss, wanted))
        g_b = (grads[0][1] + grads[1][1]) / 2 + decay * b
        b_velocity = mu * b_velocity + g_b
        b = b - rate * (g_b + mu * b_velocity if nesterov else b_velocity)
        sparsity = schedule.at(step)
        if sparsity == 0:
            g = (grads[0][0] + grads[1][0]) / 2 + decay * w
            u = (mu * u[0] + g).expand(2, -1, -1).clone()
            w = w - rate * (g + mu * u[0] if nesterov else u[0])
            continue
        total = torch.zeros_like(w)
        for rank in range(2):
            g = grads[rank][0] + decay * w
            if nesterov:
                u[rank] = mu * (u[rank] + g)
                v[rank] += held_back * (u[rank] + g)
            else:
                u[rank] = mu * u[rank] + g
                v[rank] += held_back * u[rank]
            count = entries(w.numel(), sparsity)
            order = v[rank].abs().view(-1).argsort(descending=True)[:count]
            total.view(-1)[order] += v[rank].view(-1)[order]
            v[rank].view(-1)[order] = 0
            u[rank].view(-1)[order] = 0
        w = w - sent * total / 2
    return w.numpy()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run("dgc.py", tmp_path_factory.mktemp("dgc"))


@pytest.mark.parametrize("mode", ["eager", "static"])
@pytest.mark.parametrize("case", list(worker.CASES))
def test_two_workers_follow_the_formulas(
    trained: list[dict[str, Any]], mode: str, case: str
) -> None:
    configs, options = worker.CASES[case]
    result = trained[0][f"{mode} {case}"]
    expected = simulated(configs, **options)
    found = np.array(result["w"], "float32").reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
    assert trained[1][f"{mode} {case}"]["w"] == result["w"]  # equal on both, to the last bit


def test_keeping_all_is_momentum(trained: list[dict[str, Any]]) -> None:
    w = torch.from_numpy(worker.first_weights()).requires_grad_()
    b = torch.zeros(worker.SIZE, requires_grad=True)
    optimizer = torch.optim.SGD([w, b], lr=0.5, momentum=0.9)
    for x, y in worker.batches(0, 1):
        loss = ((torch.from_numpy(x) @ w + b - torch.from_numpy(y)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = np.array(trained[0]["eager keep all"]["w"]).reshape(w.shape)
    np.testing.assert_allclose(found, w.detach().numpy(), rtol=2e-5, atol=2e-6)


def test_a_break_changes_nothing(trained: list[dict[str, Any]]) -> None:
    for result in trained:
        assert result["eager ramp with a break"] == result["eager ramp"]


def test_half_precision_messages_are_refused_with_dgc(trained: list[dict[str, Any]]) -> None:
    assert "dgc and fp16_allreduce" in trained[0]["refused"]
    assert "switch off" in trained[0]["refused"]


def test_a_program_with_nothing_to_compress_trains(trained: list[dict[str, Any]]) -> None:
    for result in trained:
        assert result["small"][2] < result["small"][0]


@pytest.mark.parametrize("count", [20, 4000])
@pytest.mark.parametrize("rate", [0.013, None])
def test_updating_single_entries_has_the_bits_of_a_dense_update(
    count: int, rate: float | None
) -> None:
    param, zeros = torch.randn(10000), torch.zeros(10005)
    sent = [(torch.randperm(10000)[:count], torch.randn(count)) for _ in range(3)]
    mean = add_entries(torch.zeros(10000), sent)
    expected = param - (mean if rate is None else mean * rate)
    update_entries(param, sent, rate, zeros)
    assert torch.equal(param, expected)
    assert not zeros.any()
