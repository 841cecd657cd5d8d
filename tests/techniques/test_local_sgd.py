"""LocalSGD on two real workers against two workers simulated by hand, and against all-reduce."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from running import run
from two_workers import RATES, STEPS, Worker

from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.kernels.local_sgd import next_interval
from fleetx.static.ops.local_sgd_ops import adaptive_interval
from fleetx.step.compose import choose
from fleetx.step.technique import Job, Sizes
from fleetx.techniques.adaptive_local_sgd import MOST_STEPS

FRONT_ENDS = ("eager", "static")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both workers wrote, of all cases."""
    return run("local_sgd.py", tmp_path_factory.mktemp("local_sgd"))


def simulate(
    is_common: Callable[[int], bool],
    *,
    momentum: float = 0.0,
    batch_norm: bool = False,
    merged: int = 1,
    average: Callable[[list[Worker], int], None] | None = None,
) -> tuple[list[np.ndarray], list[Worker]]:
    """Return worker 0's parameters after each step, and both workers at the end."""
    pair = [Worker(rank, momentum, batch_norm) for rank in range(2)]
    history = []
    for step, rate in enumerate(RATES, 1):
        for worker in pair:
            worker.step(rate, merged)
        if is_common(step):
            (average or mean)(pair, step)
        history.append(pair[0].flat())
    return history, pair


@torch.no_grad()
def mean(pair: list[Worker], step: int = 0) -> None:
    """Give both the mean of their parameters and statistics."""
    for a, b in zip(*(w.values for w in pair), strict=True):
        a.copy_((a + b) / 2)
        b.copy_(a)
    if pair[0].norm:
        for name in ("running_mean", "running_var"):
            a, b = (getattr(w.norm, name) for w in pair)
            a.copy_((a + b) / 2)
            b.copy_(a)


def three_after_two(step: int) -> bool:
    return step <= 2 or (step - 2) % 3 == 0


def compare(record: dict[str, Any], history: list[np.ndarray], tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(record["values"], history, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("front", FRONT_ENDS)
class TestBothFrontEnds:
    def test_averaging_at_every_step_is_all_reduce(self, trained, front):
        results = trained[0][front]
        compare(results["every step"], results["all-reduce"]["values"])
        compare(results["every step"], simulate(lambda step: True)[0])

    def test_interval_of_three_after_two_common_steps(self, trained, front):
        history, _ = simulate(three_after_two)
        compare(trained[0][front]["k3"], history)
        compare(trained[0][front]["k3, hierarchical"], history)
        for step, (a, b) in enumerate(
            zip(*(w[front]["k3"]["values"] for w in trained), strict=True), 1
        ):
            assert (a == b) == three_after_two(step), step

    def test_momentum_stays_local_and_statistics_are_averaged(self, trained, front):
        history, pair = simulate(three_after_two, momentum=0.9, batch_norm=True)
        name = "k3, momentum"
        compare(trained[0][front][name], history, 1e-8)
        first, second = (w[front][name]["mean"] for w in trained)
        assert first[7] == second[7]  # after step 8
        assert first[8] != second[8]
        running_mean = pair[0].norm.running_mean.tolist()
        np.testing.assert_allclose(first[-1][:8], running_mean, rtol=1e-8)

    def test_intervals_follow_loss_and_rate(self, trained, front):
        losses = np.mean([w[front]["adaptive"]["losses"] for w in trained], axis=0)
        k, last, common, intervals = 2, 0, [], []
        for step in range(1, STEPS + 1):
            if step <= 2 or step - last == k:
                last = step
                common.append(step)
                if step > 2:
                    ratio = RATES[0] * losses[step - 1] / (RATES[step - 1] * losses[0])
                    k = min(16, max(1, math.ceil(math.sqrt(ratio * 2))))
            intervals.append(k)
        assert len(set(intervals)) > 1
        for worker in trained:
            assert worker[front]["adaptive"]["intervals"] == intervals
        compare(trained[0][front]["adaptive"], simulate(lambda step: step in common)[0])

    def test_localsgd_with_auto_is_adaptive(self, trained, front):
        results = trained[0][front]
        assert results["beta"]["values"] == results["adaptive"]["values"]

    def test_outer_momentum(self, trained, front):
        snapshot: list[torch.Tensor] = []
        velocity: list[torch.Tensor] = []

        @torch.no_grad()
        def average(pair: list[Worker], step: int) -> None:
            mean(pair)
            if step > 3:
                for i, p in enumerate(pair[0].values):
                    difference = snapshot[i] - p
                    velocity[i] = 0.5 * velocity[i] + difference
                    p.copy_(snapshot[i] - 0.7 * (difference + 0.5 * velocity[i]))
                    pair[1].values[i].copy_(p)
            else:
                velocity[:] = [torch.zeros_like(p) for p in pair[0].values]
            snapshot[:] = [p.clone() for p in pair[0].values]

        history, _ = simulate(lambda step: step <= 3 or (step - 3) % 2 == 0, average=average)
        compare(trained[0][front]["outer"], history)

    def test_momentum_averaged(self, trained, front):
        @torch.no_grad()
        def average(pair: list[Worker], step: int) -> None:
            mean(pair)
            for a, b in zip(*(w.velocities for w in pair), strict=True):
                a.copy_((a + b) / 2)
                b.copy_(a)

        history, _ = simulate(
            lambda step: step == 1 or (step - 1) % 3 == 0, momentum=0.9, average=average
        )
        compare(trained[0][front]["momentum averaged"], history)

    def test_merged_gradients_count_as_one_update(self, trained, front):
        # Updates are at steps 2, 4, 6, ...; the first, the third and the fifth are averaged.
        history, _ = simulate(lambda step: step in (2, 6, 10), momentum=0.9, merged=2)
        compare(trained[0][front]["merged"], history)

    def test_differences_in_half_precision(self, trained, front):
        results = [w[front] for w in trained]
        compare(results[0]["half"], results[0]["k3, momentum"]["values"], 2e-3)
        assert results[0]["half"]["values"] != results[0]["k3, momentum"]["values"]
        assert results[0]["half"]["values"][7] == results[1]["half"]["values"][7]

    def test_training_goes_on_from_a_checkpoint(self, trained, front):
        for worker in trained:
            for name, again in worker[front + " again"].items():
                for key in ("values", "losses", "intervals", "mean"):
                    assert again[key] == worker[front][name][key], (name, key)


def test_program_shows_what_it_does(trained):
    plain, adaptive = (trained[0]["static"][name] for name in ("k3", "adaptive"))
    assert "conditional_block" in plain["ops"]
    assert "c_allreduce_sum" not in plain["ops"]
    assert plain["inner_ops"].count("c_allreduce_sum") == 4
    assert {"k_steps", "begin_step", "last_step", "w1@SNAPSHOT"} <= set(plain["names"])
    assert {"avg_loss", "loss_0", "lr_0"} <= set(adaptive["names"])


def test_nobody_waits_between_averages(trained):
    assert trained[0]["straggler"] == trained[1]["straggler"]


def test_a_loss_that_is_no_number_keeps_workers_together(trained):
    first, second = (w["nan"] for w in trained)
    assert first == second
    assert first["1"] == [2] * STEPS  # nothing to compare with: the interval stays
    assert set(first["3"]) == {2}  # at the average of step 3 it says nothing, later it says 2


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ((2.0, 0.1), 3),  # sqrt(8)
        ((0.5, 0.1), 2),  # sqrt(2)
        ((0.25, 0.1), 1),
        ((1e-9, 0.1), 1),
        ((1.0, 0.001), 16),  # sqrt(400) is more than the most
        ((1.0, 0.0), 16),
        ((math.inf, 0.1), 16),
        ((math.nan, 0.1), 7),
        ((-1.0, 0.1), 7),
    ],
)
def test_next_interval(now, expected):
    assert next_interval(4, (1.0, 0.1), now, 7, MOST_STEPS) == expected
    k_steps = torch.tensor([7])
    values = [torch.tensor([value], dtype=torch.float64) for value in (*now, 1.0, 0.1)]
    adaptive_interval(*values, k_steps, init_k_steps=4, most_steps=MOST_STEPS)  # what programs run
    assert k_steps.item() == expected


def test_technique_is_chosen_by_its_switch():
    strategy = DistributedStrategy()
    strategy.localsgd = True
    strategy.localsgd_configs = {"k_steps": 4}
    _, (local,) = choose(Job(strategy=strategy, workers=2))
    (row,) = local.rows(Sizes(shapes=((1000,),), buffer_elements=24))
    assert local.name == "localsgd"
    assert (row.bytes_sent, row.memory) == (4096 / 4, 4096)
    assert choose(Job(strategy=strategy, workers=1))[1] == []
    strategy.auto = True
    _, (adaptive,) = choose(Job(strategy=strategy, workers=2))
    assert (adaptive.name, adaptive.k_steps) == ("adaptive_localsgd", 4)
    strategy.auto = False
    strategy.adaptive_localsgd = True
    with pytest.raises(ValueError, match="localsgd and adaptive_localsgd.*switch off"):
        choose(Job(strategy=strategy, workers=2))
