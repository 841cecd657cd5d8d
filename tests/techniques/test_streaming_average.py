"""LocalSGD with averages in the background: two real workers against two simulated by hand in
float64, who apply each part's average exactly `overlap_steps` updates after it began."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from running import run
from two_workers import RATES, Worker

from fleetx import static
from fleetx.fleet.collective.elastic_rules import prepare_step
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.kernels import rounded_blocks
from fleetx.step.compose import choose
from fleetx.step.program_step import ProgramStep
from fleetx.step.technique import Job, Sizes
from fleetx.step.train_step import TrainStep
from fleetx.techniques.flat_bucket import FlatBucket

OUTER = {"outer_momentum": 0.5, "outer_lr": 0.7, "outer_nesterov": True}
PARTS = {1: [[0, 1, 2, 3]], 2: [[0], [1, 2, 3]], 4: [[0], [1], [2], [3]]}
"""Which of w1, b1, w2 and b2 (48, 8, 24 and 3 entries) travel together."""
CASES: dict[str, dict[str, Any]] = {
    "delayed": {"settings": {"k_steps": 3, "begin_step": 2, "overlap_steps": 2}, "breaks_at": 6},
    "delayed by an interval": {"settings": {"k_steps": 3, "begin_step": 0, "overlap_steps": 3}},
    "fragments": {"settings": {"k_steps": 4, "begin_step": 1, "fragments": 2}},
    "streaming": {
        "settings": {
            "k_steps": 4,
            "begin_step": 1,
            "overlap_steps": 2,
            "fragments": 2,
            "blend": 0.5,
            "keep_local_steps": False,
            **OUTER,
        },
        "breaks_at": 6,
    },
    "blended": {"settings": {"k_steps": 2, "begin_step": 1, "blend": 0.25}},
    "8 bits": {"settings": {"k_steps": 3, "overlap_steps": 1, "exchange_bits": 8}, "breaks_at": 5},
    "4 bits": {"settings": {"k_steps": 3, "fragments": 2, "exchange_bits": 4, **OUTER}},
    "by shares": {
        "settings": {
            "k_steps": 3,
            "overlap_steps": 2,
            "exchange_bits": 4,
            "sum_by_shares": True,
            **OUTER,
        },
        "batch_norm": True,
        "breaks_at": 6,
    },
    "with statistics": {
        "settings": {
            "k_steps": 3,
            "begin_step": 1,
            "overlap_steps": 2,
            "blend": 0.5,
            "average_momentum": True,
        },
        "momentum": 0.9,
        "batch_norm": True,
        "breaks_at": 6,
    },
    "plain, outer": {"settings": {"k_steps": 3, "begin_step": 2, **OUTER}},
    "synchronized": {
        "settings": {"k_steps": 4, "begin_step": 1, "overlap_steps": 2, "fragments": 2},
        "synchronized_at": 6,
    },
    "adaptive": {
        "technique": "adaptive_localsgd",
        "settings": {"init_k_steps": 2, "begin_step": 2, "overlap_steps": 2, "fragments": 2},
        "breaks_at": 7,
    },
    "adaptive, waiting": {
        "technique": "adaptive_localsgd",
        "settings": {"init_k_steps": 2, "begin_step": 2},
    },
    "adaptive, 8 bits": {
        "technique": "adaptive_localsgd",
        "settings": {"init_k_steps": 2, "begin_step": 2, "exchange_bits": 8},
    },
    "half": {
        "settings": {"k_steps": 3, "begin_step": 2, "overlap_steps": 2},
        "also": ["fp16_allreduce"],
    },
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both workers wrote, of all cases."""
    folder = tmp_path_factory.mktemp("streaming")
    (folder / "cases.json").write_text(json.dumps(CASES))
    return run("streaming.py", folder)


class Simulation:
    """Two workers, the last averages and what is under way."""

    def __init__(self, case: dict[str, Any]) -> None:
        defaults = {
            "begin_step": 1,
            "overlap_steps": 0,
            "fragments": 1,
            "blend": 1.0,
            "keep_local_steps": True,
            "outer_momentum": 0.0,
            "outer_lr": 1.0,
            "outer_nesterov": False,
            "exchange_bits": 32,
            "sum_by_shares": False,
        }
        self.settings: dict[str, Any] = {**defaults, **case["settings"]}
        self.with_momenta = bool(self.settings.get("average_momentum"))
        momentum = case.get("momentum", 0.0)
        self.pair = [Worker(rank, momentum, bool(case.get("batch_norm"))) for rank in range(2)]
        self.parts = [list(part) for part in PARTS[self.settings["fragments"]]]
        self.parts[-1] += range(4, len(self.pair[0].values))  # of the normalisation
        count = len(self.pair[0].values)
        self.snapshot = [self.pair[0].values[i].detach().clone() for i in range(count)]
        self.velocity = [torch.zeros_like(s) for s in self.snapshot]
        self.residual = [[torch.zeros_like(s) for s in self.snapshot] for _ in range(2)]
        entries = sum(s.numel() for s in self.snapshot)
        self.lost_of_sum = torch.zeros(entries, dtype=torch.float64)
        self.under_way: dict[int, dict[str, Any]] = {}

    @torch.no_grad()
    def average_now(self) -> None:
        for a, b in self._pairs(range(len(self.snapshot))):
            mean = (a + b) / 2
            a.copy_(mean)
            b.copy_(mean)
        for i, p in enumerate(self.pair[0].values):
            self.snapshot[i] = p.clone()

    def _pairs(self, numbers: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        first, second = self.pair
        found = [(first.values[i], second.values[i]) for i in numbers]
        return found + self._others(numbers)

    def _others(self, numbers: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        first, second = self.pair
        found = []
        if self.with_momenta:
            found += [(first.velocities[i], second.velocities[i]) for i in numbers]
        if first.norm is not None and max(numbers) == len(self.snapshot) - 1:
            for name in ("running_mean", "running_var"):
                found.append((getattr(first.norm, name), getattr(second.norm, name)))
        return found

    @torch.no_grad()
    def start(self, part: int, step: int) -> None:
        numbers = self.parts[part]
        reference = [[w.values[i].clone() for i in numbers] for w in self.pair]
        mean = [self.snapshot[i] - (a + b) / 2 for i, a, b in zip(numbers, *reference, strict=True)]
        if self.settings["exchange_bits"] != 32:
            mean = self._rounded(numbers, reference)
        others = [(a + b) / 2 for a, b in self._others(numbers)]
        due = step + self.settings["overlap_steps"]
        self.under_way[part] = {"due": due, "mean": mean, "from": reference, "others": others}

    def _rounded(self, numbers: list[int], reference: list[list[torch.Tensor]]) -> Any:
        """Return the mean of what the messages of both stand for, one message per part; by shares,
        of the sum that is rounded again, of which the first worker's share is all of it here."""
        total: Any = 0
        for rank, values in enumerate(reference):
            residual = self.residual[rank]
            rows = zip(numbers, values, strict=True)
            sent = torch.cat([(self.snapshot[i] - v + residual[i]).flatten() for i, v in rows])
            bits = self.settings["exchange_bits"]
            message = rounded_blocks.to_blocks(sent, bits)
            restored = rounded_blocks.from_blocks(message, sent, bits)
            sizes = [self.snapshot[i].numel() for i in numbers]
            for i, lost in zip(numbers, (sent - restored).split(sizes), strict=True):
                residual[i] = lost.view(self.snapshot[i].shape)
            total = total + restored / 2
        if self.settings["sum_by_shares"]:
            self.lost_of_sum += 2 * total
            message = rounded_blocks.to_blocks(self.lost_of_sum, bits)
            restored = rounded_blocks.from_blocks(message, self.lost_of_sum, bits)
            self.lost_of_sum -= restored
            total = restored / 2
        parts = total.split(sizes)
        return [p.view(self.snapshot[i].shape) for i, p in zip(numbers, parts, strict=True)]

    @torch.no_grad()
    def finish(self, part: int) -> None:
        arrived = self.under_way.pop(part)
        s = self.settings
        for row, i in enumerate(self.parts[part]):
            difference = arrived["mean"][row]
            self.velocity[i] = s["outer_momentum"] * self.velocity[i] + difference
            change = self.velocity[i]
            if s["outer_nesterov"]:
                change = difference + s["outer_momentum"] * self.velocity[i]
            self.snapshot[i] = self.snapshot[i] - s["outer_lr"] * change
            for rank, worker in enumerate(self.pair):
                p = worker.values[i]
                base = arrived["from"][rank][row] if s["keep_local_steps"] else p.clone()
                p.add_(s["blend"] * (self.snapshot[i] - base))
        for pair, mean in zip(self._others(self.parts[part]), arrived["others"], strict=True):
            for each in pair:
                each.copy_((1 - s["blend"]) * each + s["blend"] * mean)

    def run(self, synchronized_at: int = 0) -> list[list[np.ndarray]]:
        """Return both workers' parameters after each step."""
        history, last = [], 0
        count, k = len(self.parts), self.settings["k_steps"]
        for step, rate in enumerate(RATES, 1):
            for worker in self.pair:
                worker.step(rate)
            if step <= self.settings["begin_step"]:
                self.average_now()
                last = step
            else:
                for part in [p for p, each in self.under_way.items() if each["due"] == step]:
                    self.finish(part)
                for part in range(count):
                    if step - last == int(np.ceil(k * (part + 1) / count)):
                        self.start(part, step)
                        if not self.settings["overlap_steps"]:
                            self.finish(part)
                if step - last == k:
                    last = step
            if step == synchronized_at:
                for part in sorted(self.under_way):
                    self.finish(part)
                self.average_now()
                last = step
            history.append([worker.flat() for worker in self.pair])
        return history


REFERENCED = [
    name for name, case in CASES.items() if "technique" not in case and "also" not in case
]


@pytest.mark.parametrize("name", REFERENCED)
def test_workers_do_what_the_formula_says(trained, name):
    simulation = Simulation(CASES[name])
    history = simulation.run(CASES[name].get("synchronized_at", 0))
    for rank in range(2):
        values = trained[rank]["trained"][name]["values"]
        expected = [row[rank] for row in history]
        np.testing.assert_allclose(values, expected, rtol=1e-8, atol=1e-10)
    if CASES[name].get("batch_norm"):
        for rank, worker in enumerate(simulation.pair):
            assert worker.norm is not None
            expected = torch.cat([worker.norm.running_mean, worker.norm.running_var]).numpy()
            found = trained[rank]["trained"][name]["statistics"][-1]
            np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_training_goes_on_from_a_checkpoint_with_averages_under_way(trained):
    for worker in trained:
        assert len(worker["again"]) == 6
        for name, again in worker["again"].items():
            assert again == worker["trained"][name], name


def test_synchronizing_makes_workers_equal(trained):
    first, second = (worker["trained"]["synchronized"]["values"] for worker in trained)
    assert first[5] == second[5]
    assert first[4] != second[4]


def test_adaptive_intervals_follow_the_loss_and_are_the_same_everywhere(trained):
    first, second = (worker["trained"]["adaptive"]["intervals"] for worker in trained)
    assert first == second
    assert len(set(first)) > 1


def test_adaptive_averages_of_8_bits_stay_near_the_exact_ones(trained):
    cases = trained[0]["trained"]
    exact = cases["adaptive, waiting"]
    rounded = cases["adaptive, 8 bits"]
    assert rounded["intervals"] == exact["intervals"]
    np.testing.assert_allclose(rounded["values"], exact["values"], atol=5e-3)


def test_half_precision_stays_near_the_exact_average(trained):
    cases = trained[0]["trained"]
    np.testing.assert_allclose(cases["half"]["values"], cases["delayed"]["values"], atol=2e-3)
    assert cases["half"]["values"] != cases["delayed"]["values"]


def local(**settings: Any) -> DistributedStrategy:
    strategy = DistributedStrategy()
    strategy.localsgd = True
    strategy.localsgd_configs = settings
    return strategy


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"k_steps": 4, "overlap_steps": 5}, r'"overlap_steps"\] is 5.*4 steps.*lower it'),
        ({"k_steps": 4, "fragments": 5}, r'"fragments"\] is 5.*4 steps.*lower it'),
        ({"blend": 1.5}, r'"blend"\] is 1.5.*up to 1'),
        ({"exchange_bits": 16}, r'"exchange_bits"\] is 16.*32, 8 or 4'),
        ({"sum_by_shares": True}, r'"sum_by_shares"\] is on.*set exchange_bits to 8 or 4'),
    ],
)
def test_settings_that_cannot_act_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        choose(Job(strategy=local(**settings), workers=2))


def test_half_precision_and_fewer_bits_are_refused_together():
    strategy = local(k_steps=4, exchange_bits=8)
    strategy.fp16_allreduce = True
    with pytest.raises(ValueError, match="exchange_bits.*fp16_allreduce.*switch one of them off"):
        choose(Job(strategy=strategy, workers=2))


def test_programs_and_elastic_jobs_refuse_it():
    job = Job(strategy=local(k_steps=4, overlap_steps=2), workers=2)
    _, (technique,) = choose(job)
    with pytest.raises(ValueError, match="a program waits.*torch module"):
        technique.change_program(ProgramStep(static.optimizer.SGD(0.1)))
    with pytest.raises(ValueError, match="elastic job: overlap_steps.*leave these settings out"):
        prepare_step(TrainStep(), job, [technique], lambda: 1.0)


def test_explanation_shows_the_settings():
    settings = {"overlap_steps": 2, "fragments": 2, "blend": 0.5, "exchange_bits": 8}
    _, (local_sgd,) = choose(Job(strategy=local(k_steps=4, **settings), workers=2))
    (row,) = local_sgd.rows(Sizes(shapes=((1000,),)))
    assert row.settings.endswith(
        "applied 2 steps later, 2 fragments in turn, blend 0.5, 8-bit differences"
    )


def test_costs_of_rounded_differences():
    _, (local_sgd,) = choose(Job(strategy=local(k_steps=4, exchange_bits=4), workers=3))
    (row,) = local_sgd.rows(Sizes(shapes=((512,),)))
    assert row.bytes_sent == 2 * (512 / 2 + 2 * 4) / 4
    strategy = local(k_steps=4, exchange_bits=4, sum_by_shares=True)
    _, (local_sgd,) = choose(Job(strategy=strategy, workers=3))
    (row,) = local_sgd.rows(Sizes(shapes=((512,),)))
    assert row.bytes_sent == pytest.approx(2 * 2 / 3 * (512 / 2 + 2 * 4) / 4)
    assert row.settings.endswith("4-bit differences summed by shares")


def test_a_bucket_follows_its_snapshot_or_what_it_is_ahead_of_the_reference():
    tensor = torch.tensor([1.0, 2.0])
    bucket = FlatBucket([tensor])
    bucket.memory("snapshot").copy_(torch.tensor([4.0, 4.0]))
    bucket.follow(0.5)
    assert tensor.tolist() == [2.5, 3.0]
    bucket.memory("reference").copy_(torch.tensor([3.0, 4.0]))
    bucket.follow(1.0)
    assert tensor.tolist() == [3.5, 3.0]
