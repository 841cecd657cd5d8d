"""Learning rates: decay by ops over steps, and schedulers over epochs, against formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers, lr
from fleetx.static.graph.operator import OpRole

COUNTER = "@LR_DECAY_COUNTER@"


def run_steps(rate: Any, steps: int) -> list[float]:
    executor = static.Executor(static.CPUPlace())
    executor.run(static.default_startup_program())
    return [executor.run(fetch_list=[rate])[0].item() for _ in range(steps)]


def polynomial(step: int, cycle: bool) -> float:
    steps = 5 * max(math.ceil(step / 5), 1) if cycle else 5
    step = step if cycle else min(step, 5)
    return (0.1 - 0.01) * (1 - step / steps) ** 2 + 0.01


def piecewise(step: int) -> float:
    return 0.1 if step < 3 else 0.2 if step < 6 else 0.3


DECAYS: dict[str, tuple[Callable[[], Any], Callable[[int], float]]] = {
    "exponential": (
        lambda: layers.exponential_decay(0.1, 3, 0.5),
        lambda s: 0.1 * 0.5 ** (s / 3),
    ),
    "exponential in stairs": (
        lambda: layers.exponential_decay(0.1, 3, 0.5, staircase=True),
        lambda s: 0.1 * 0.5 ** (s // 3),
    ),
    "natural": (
        lambda: layers.natural_exp_decay(0.1, 3, 0.5),
        lambda s: 0.1 * math.exp(-0.5 * s / 3),
    ),
    "natural in stairs": (
        lambda: layers.natural_exp_decay(0.1, 3, 0.5, staircase=True),
        lambda s: 0.1 * math.exp(-0.5 * (s // 3)),
    ),
    "inverse": (
        lambda: layers.inverse_time_decay(0.1, 3, 0.5),
        lambda s: 0.1 / (1 + 0.5 * s / 3),
    ),
    "inverse in stairs": (
        lambda: layers.inverse_time_decay(0.1, 3, 0.5, staircase=True),
        lambda s: 0.1 / (1 + 0.5 * (s // 3)),
    ),
    "polynomial": (
        lambda: layers.polynomial_decay(0.1, 5, 0.01, 2.0),
        lambda s: polynomial(s, cycle=False),
    ),
    "polynomial in cycles": (
        lambda: layers.polynomial_decay(0.1, 5, 0.01, 2.0, cycle=True),
        lambda s: polynomial(s, cycle=True),
    ),
    "piecewise": (lambda: layers.piecewise_decay([3, 6], [0.1, 0.2, 0.3]), piecewise),
    "noam": (
        lambda: layers.noam_decay(64, 4, 2.0),
        lambda s: 2 * 64**-0.5 * min((s + 1) ** -0.5, (s + 1) * 4**-1.5),  # counts from 1
    ),
    "cosine": (
        lambda: layers.cosine_decay(0.1, 3, 6),
        lambda s: 0.1 * 0.5 * (math.cos((s // 3) * math.pi / 6) + 1),
    ),
    "warm-up to a number": (
        lambda: layers.linear_lr_warmup(0.5, 4, 0.1, 0.3),
        lambda s: 0.1 + 0.2 * s / 4 if s < 4 else 0.5,
    ),
    "warm-up to a decay": (
        lambda: layers.linear_lr_warmup(layers.piecewise_decay([3, 6], [0.1, 0.2, 0.3]), 4, 0, 1),
        lambda s: s / 4 if s < 4 else piecewise(s),
    ),
}


@pytest.mark.parametrize("name", DECAYS)
def test_decay_follows_its_formula(name: str) -> None:
    build, formula = DECAYS[name]
    found = run_steps(build(), 12)
    assert found == pytest.approx([formula(step) for step in range(12)], rel=1e-5)
    ops = static.default_main_program().global_block().ops
    assert ops[0].type == "increment"
    assert all(op.op_role == OpRole.LRSched for op in ops)
    assert static.default_main_program().global_block().var(COUNTER).persistable


def test_two_decays_share_one_counter() -> None:
    first = layers.exponential_decay(0.1, 3, 0.5)
    second = layers.inverse_time_decay(0.1, 3, 0.5)
    types = [op.type for op in static.default_main_program().global_block().ops]
    assert types.count("increment") == 1
    executor = static.Executor(static.CPUPlace())
    executor.run(static.default_startup_program())
    for step in range(3):
        found = executor.run(fetch_list=[first, second])
        expected = [0.1 * 0.5 ** (step / 3), 0.1 / (1 + 0.5 * step / 3)]
        assert [v.item() for v in found] == pytest.approx(expected, rel=1e-5)


def test_step_counter_counts_runs_from_its_begin() -> None:
    counter = layers.autoincreased_step_counter(counter_name="steps", begin=5, step=2)
    assert run_steps(counter, 3) == [6, 8, 10]  # begin - 1 is where it stands before
    assert layers.autoincreased_step_counter(counter_name="steps") is counter
    assert layers.autoincreased_step_counter().name == "@STEP_COUNTER@"


def test_a_test_clone_leaves_the_schedule_out() -> None:
    layers.piecewise_decay([3, 6], [0.1, 0.2, 0.3])
    clone = static.default_main_program().clone(for_test=True)
    assert not clone.global_block().ops


def test_piecewise_decay_counts_its_values() -> None:
    with pytest.raises(ValueError, match="one more than boundaries"):
        layers.piecewise_decay([1, 2], [0.1, 0.2])
    with pytest.raises(TypeError, match="learning_rate"):
        layers.cosine_decay("0.1", 3, 6)


# -- schedulers --------------------------------------------------------------------------------
def one_cycle(step: int) -> float:
    peak = 0.3 * 40 - 1
    if step <= peak:
        start, end, part = 0.04, 1.0, step / peak
    else:
        start, end, part = 1.0, 0.0001, (step - peak) / (39 - peak)
    return end + (start - end) / 2 * (1 + math.cos(math.pi * part))


def one_cycle_in_three(step: int) -> float:
    ends = [0, 0.3 * 40 - 1, 2 * 0.3 * 40 - 2, 39]
    return float(np.interp(step, ends, [0.04, 1.0, 0.04, 0.0001]))


def triangle(step: int, up: int, down: int, scale: Callable[[int, int], float]) -> float:
    cycle, place = divmod(step, up + down)
    height = place / up if place <= up else (up + down - place) / down
    return 0.1 + 0.9 * height * scale(cycle + 1, step)


def restarts(step: int) -> float:
    length = 3
    while step >= length:
        step, length = step - length, length * 2
    return 0.01 + (0.5 - 0.01) * (1 + math.cos(math.pi * step / length)) / 2


SCHEDULERS: dict[str, tuple[Callable[[], lr.LRScheduler], Callable[[int], float]]] = {
    "noam": (
        lambda: lr.NoamDecay(64, 5, 2.0),
        lambda e: 2 * 64**-0.5 * min((e or 1) ** -0.5, e * 5**-1.5),
    ),
    "piecewise": (
        lambda: lr.PiecewiseDecay([3, 6], [0.1, 0.2, 0.3]),
        lambda e: 0.1 if e < 3 else 0.2 if e < 6 else 0.3,
    ),
    "natural": (lambda: lr.NaturalExpDecay(0.5, 0.1), lambda e: 0.5 * math.exp(-0.1 * e)),
    "inverse": (lambda: lr.InverseTimeDecay(0.5, 0.1), lambda e: 0.5 / (1 + 0.1 * e)),
    "polynomial": (
        lambda: lr.PolynomialDecay(0.1, 5, 0.01, 2.0),
        lambda e: polynomial(e, cycle=False),
    ),
    "polynomial in cycles": (
        lambda: lr.PolynomialDecay(0.1, 5, 0.01, 2.0, cycle=True),
        lambda e: polynomial(e, cycle=True),
    ),
    "warm-up": (
        lambda: lr.LinearWarmup(0.5, 6, 0.0, 0.3),
        lambda e: 0.3 * e / 6 if e < 6 else 0.5,
    ),
    "warm-up to a scheduler": (
        lambda: lr.LinearWarmup(lr.ExponentialDecay(0.5, 0.9), 6, 0.0, 0.5),
        lambda e: 0.5 * e / 6 if e < 6 else 0.5 * 0.9 ** (e - 6),
    ),
    "exponential": (lambda: lr.ExponentialDecay(0.5, 0.9), lambda e: 0.5 * 0.9**e),
    "milestones": (
        lambda: lr.MultiStepDecay(0.5, [3, 5, 8], 0.5),
        lambda e: 0.5 * 0.5 ** sum(e >= m for m in (3, 5, 8)),
    ),
    "steps": (lambda: lr.StepDecay(0.5, 3, 0.5), lambda e: 0.5 * 0.5 ** (e // 3)),
    "lambda": (lambda: lr.LambdaDecay(0.5, lambda e: 1 / (1 + e)), lambda e: 0.5 / (1 + e)),
    "multiplicative": (
        lambda: lr.MultiplicativeDecay(0.5, lambda e: 0.9 if e < 4 else 0.5),
        lambda e: 0.5 * 0.9 ** min(e, 3) * 0.5 ** max(e - 3, 0),
    ),
    "cosine": (
        lambda: lr.CosineAnnealingDecay(0.5, 6, 0.01),
        lambda e: 0.01 + 0.49 * (1 + math.cos(math.pi * e / 6)) / 2,
    ),
    "cosine with restarts": (lambda: lr.CosineAnnealingWarmRestarts(0.5, 3, 2, 0.01), restarts),
    "one cycle": (lambda: lr.OneCycleLR(1.0, 40), one_cycle),
    "one cycle in three phases": (
        lambda: lr.OneCycleLR(1.0, 40, three_phase=True, anneal_strategy="linear"),
        one_cycle_in_three,
    ),
    "triangles": (
        lambda: lr.CyclicLR(0.1, 1.0, 4, 6),
        lambda e: triangle(e, 4, 6, lambda cycle, step: 1.0),
    ),
    "halved triangles": (
        lambda: lr.CyclicLR(0.1, 1.0, 4, mode="triangular2"),
        lambda e: triangle(e, 4, 4, lambda cycle, step: 0.5 ** (cycle - 1)),
    ),
    "falling triangles": (
        lambda: lr.CyclicLR(0.1, 1.0, 4, mode="exp_range", exp_gamma=0.95),
        lambda e: triangle(e, 4, 4, lambda cycle, step: 0.95**step),
    ),
    "own triangles": (
        lambda: lr.CyclicLR(0.1, 1.0, 4, scale_fn=lambda n: 1 / n, scale_mode="cycle"),
        lambda e: triangle(e, 4, 4, lambda cycle, step: 1 / cycle),
    ),
    "linear": (
        lambda: lr.LinearLR(0.5, 8, 0.2, 0.9),
        lambda e: 0.5 * (0.2 + 0.7 * min(e, 8) / 8),
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_follows_its_formula(name: str) -> None:
    build, formula = SCHEDULERS[name]
    scheduler = build()
    found = [scheduler()]
    for _ in range(30):
        scheduler.step()
        found.append(scheduler())
    assert found == pytest.approx([formula(epoch) for epoch in range(31)], rel=1e-9, abs=1e-12)
    assert scheduler.last_epoch == 30
    scheduler.step(7)
    assert scheduler() == pytest.approx(formula(7), rel=1e-9)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_goes_on_from_a_saved_state(name: str) -> None:
    build, _ = SCHEDULERS[name]
    first, second = build(), build()
    for _ in range(5):
        first.step()
    second.set_state_dict(first.state_dict())
    if name == "cosine with restarts":  # Paddle saves no place in the cycle: go there by the epoch
        second.step(5)
    assert second() == pytest.approx(first())
    first.step()
    second.step()
    assert second() == pytest.approx(first())


def test_reduce_on_plateau() -> None:
    scheduler = lr.ReduceOnPlateau(1.0, factor=0.5, patience=2, cooldown=1)
    found = []
    for metric in [5, 4, 4, 4, np.array([4.0]), 3, 3, 3, 3, 3, 3, 3]:
        scheduler.step(metric)
        found.append(scheduler())
    # Worse three times in a row halves the rate; one epoch after that is not counted.
    assert found == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25]
    state = scheduler.state_dict()
    assert set(state) == {"cooldown_counter", "best", "num_bad_epochs", "last_epoch", "last_lr"}
    other = lr.ReduceOnPlateau(1.0, mode="max", threshold_mode="abs", threshold=0.5)
    other.set_state_dict(state)
    assert other() == 0.25
    with pytest.raises(ValueError, match="must be one number"):
        scheduler.step(np.zeros(2))
    with pytest.raises(TypeError, match="must be a number"):
        scheduler.step("3")


def test_reduce_on_plateau_has_a_floor_and_looks_up_too() -> None:
    scheduler = lr.ReduceOnPlateau(1.0, mode="max", factor=0.1, patience=0, min_lr=0.05)
    rates = []
    for metric in [1.0, 1.0, 1.0, 2.0, 2.0]:
        scheduler.step(metric)
        rates.append(scheduler())
    assert rates == pytest.approx([1, 0.1, 0.05, 0.05, 0.05])


def test_own_scheduler_and_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    class Halving(lr.LRScheduler):
        def get_lr(self) -> float:
            return self.base_lr / 2**self.last_epoch

    scheduler = Halving(1.0, verbose=True)
    scheduler.step()
    assert scheduler() == 0.5
    assert "Epoch 1: Halving set learning rate to 0.5." in capsys.readouterr().out
    assert scheduler._var_name is None
    with pytest.raises(NotImplementedError, match="must define get_lr"):
        lr.LRScheduler(0.1)


def test_a_state_that_does_not_fit_is_refused_or_mentioned() -> None:
    scheduler = lr.StepDecay(0.5, 3)
    with pytest.raises(RuntimeError, match="must have 'last_lr'"):
        scheduler.set_state_dict({"last_epoch": 3})
    with pytest.warns(UserWarning, match="does not use"):
        scheduler.set_state_dict({"last_epoch": 3, "last_lr": 0.1, "best": 1.0})


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: lr.StepDecay("0.1", 3), TypeError),
        (lambda: lr.StepDecay(-0.1, 3), ValueError),
        (lambda: lr.StepDecay(0.1, 3.0), TypeError),
        (lambda: lr.StepDecay(0.1, 3, gamma=1.5), ValueError),
        (lambda: lr.NoamDecay(0, 5), ValueError),
        (lambda: lr.PiecewiseDecay([], [0.1]), ValueError),
        (lambda: lr.PiecewiseDecay([1], [0.1]), ValueError),
        (lambda: lr.ExponentialDecay(0.1, 1.5), ValueError),
        (lambda: lr.MultiStepDecay(0.1, [5, 3]), ValueError),
        (lambda: lr.MultiStepDecay(0.1, 5), TypeError),
        (lambda: lr.LinearWarmup(0.1, 5, 0.3, 0.2), ValueError),
        (lambda: lr.LinearWarmup("0.1", 5, 0.1, 0.2), TypeError),
        (lambda: lr.LambdaDecay(0.1, 3), TypeError),
        (lambda: lr.ReduceOnPlateau(0.1, mode="up"), ValueError),
        (lambda: lr.ReduceOnPlateau(0.1, factor=1.0), ValueError),
        (lambda: lr.OneCycleLR(0.1, 10, anneal_strategy="exp"), ValueError),
        (lambda: lr.OneCycleLR(0.1, 10, phase_pct=0.6, three_phase=True), ValueError),
        (lambda: lr.CyclicLR(0.1, 1.0, 4, mode="square"), ValueError),
        (lambda: lr.CosineAnnealingWarmRestarts(0.1, 0), ValueError),
        (lambda: lr.LinearLR(0.1, 0), ValueError),
    ],
)
def test_settings_out_of_range_are_refused(
    build: Callable[[], Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        build()


@pytest.mark.usefixtures("fresh_graph")
def test_linear_warmup_decay() -> None:
    # The values of the same schedule, built of layers, in Paddle 1.8.5.
    expected = [0.0, 0.025, 0.05, 0.075, 0.06, 0.05, 0.04, 0.03, 0.02, 0.01, 0.0, 0.0]
    rate = layers.linear_warmup_decay(0.1, 4, 10)
    exe = static.Executor()
    with static.scope_guard(static.Scope()):
        exe.run(static.default_startup_program())
        found = [exe.run(fetch_list=[rate])[0].item() for _ in expected]
    np.testing.assert_allclose(found, expected, atol=1e-7)
