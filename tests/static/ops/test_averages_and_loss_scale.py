"""Averages of parameters over windows, and the scale of the loss over good and bad steps."""

from __future__ import annotations

import torch

from fleetx.static.graph.op_registry import get_op


def test_average_accumulates_closes_its_windows() -> None:
    attrs = {"average_window": 0.5, "min_average_window": 2, "max_average_window": 4}
    state = [torch.zeros(2), torch.zeros(2), torch.zeros(2)]
    state += [torch.zeros(1, dtype=torch.int64) for _ in range(3)]
    seen = []
    for step in range(1, 10):
        get_op("average_accumulates").fn(torch.full((2,), float(step)), *state, **attrs)
        seen.append((state[0][0].item(), state[2][0].item(), state[3].item(), state[4].item()))
    # (running sum, sum of the closed window, its growing count, count of the closed window)
    assert seen == [
        (1, 0, 1, 0),
        (0, 3, 0, 2),
        (3, 3, 1, 2),
        (0, 7, 0, 2),
        (5, 7, 1, 2),
        (11, 7, 2, 2),
        (0, 18, 0, 3),
        (8, 18, 1, 3),
        (17, 18, 2, 3),
    ]


def test_unscale_divides_and_reports_infinities() -> None:
    grads = [torch.tensor([2.0, 4.0]), torch.tensor([[8.0]])]
    out, found = get_op("check_finite_and_unscale").fn(grads, torch.tensor([4.0]))
    assert [g.tolist() for g in out] == [[0.5, 1.0], [[2.0]]]
    assert found.tolist() == [False]
    grads[1].fill_(float("inf"))
    assert get_op("check_finite_and_unscale").fn(grads, torch.tensor([4.0]))[1].tolist() == [True]
    grads[1].fill_(float("nan"))
    assert get_op("check_finite_and_unscale").fn(grads, torch.tensor([4.0]))[1].tolist() == [True]


def test_loss_scale_follows_good_and_bad_steps() -> None:
    attrs = {
        "incr_every_n_steps": 3,
        "decr_every_n_nan_or_inf": 2,
        "incr_ratio": 2.0,
        "decr_ratio": 0.25,
        "stop_update": False,
    }
    scale = torch.tensor([8.0])
    good, bad = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    seen = []
    for overflow in (0, 0, 0, 1, 0, 1, 1, 1, 1):
        grads = [torch.ones(2)]
        get_op("update_loss_scaling").fn(
            grads, torch.tensor([bool(overflow)]), scale, good, bad, **attrs
        )
        assert grads[0].tolist() == ([0.0, 0.0] if overflow else [1.0, 1.0])
        seen.append((scale.item(), good.item(), bad.item()))
    assert seen == [
        (8, 1, 0),
        (8, 2, 0),
        (16, 0, 0),
        (16, 0, 1),
        (16, 1, 0),
        (16, 0, 1),
        (4, 0, 0),
        (4, 0, 1),
        (1, 0, 0),
    ]


def test_loss_scale_never_becomes_infinite() -> None:
    attrs = {
        "incr_every_n_steps": 1,
        "decr_every_n_nan_or_inf": 2,
        "incr_ratio": 2.0,
        "decr_ratio": 0.5,
        "stop_update": False,
    }
    scale = torch.tensor([3e38])
    counts = [torch.zeros(1, dtype=torch.int32) for _ in range(2)]
    get_op("update_loss_scaling").fn(
        [torch.ones(1)], torch.tensor([False]), scale, *counts, **attrs
    )
    assert scale.item() == torch.tensor(3e38).item()
