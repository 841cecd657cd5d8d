"""Compressed gradients over a slow network: dgc, signsgd, powersgd and demo against DDP.

    python bench/dgc.py [--seeds 3] [--steps 1400] [--rounds 5] [--mbit 100] [--keep FILE]
                        [--data FILE] [--no_demo]

A convolutional network with a wide layer (1.6 million parameters) on Fashion-MNIST;
fashion_mnist.py describes the training and the measurement. dgc and powersgd, which approximate
DDP, use its learning rate. Speed and bytes are measured once compression is complete, with DDP and
torch's own hook for PowerSGD among the ways; LocalSGD has a benchmark of its own. Figures go to
bench/results/dgc.json, with a plot of bytes against accuracy next to them (needs matplotlib: the
extra "bench").

`--seeds 1 --steps 14 --rounds 1 --window 6` only shows that everything runs.
"""

from __future__ import annotations

import argparse
from typing import Any

from fashion_mnist import (
    HELD_OUT,
    RATES,
    RECIPE,
    Candidate,
    Task,
    Trainings,
    Way,
    measure,
    options,
    publish,
    workers,
)
from goals import goal

HIDDEN = 2048
SPARSITY = 0.999
RAMP = [0.75, 0.9375, 0.984375, 0.996, SPARSITY]
"""The warm-up of the paper: each stage sends a quarter of the previous one."""
RANKS = (1, 2, 4)
SIGN_RATES = (3e-4, 1e-3, 3e-3, 1e-2)
"""Of demo, whose updates are signs."""
TOP_K = 32
UNTIMED = 3
"""Steps before a measured window: torch's hook compresses from the third on."""


def task(rate: float, technique: str = "", **configs: Any) -> Task:
    """Return the task of training with a technique, or with DDP."""
    recipe = {**RECIPE, "lr": rate, "hidden": HIDDEN}
    if not technique:
        return {"kind": "ddp", **recipe}
    strategy = {technique: True, f"{technique}_configs": configs}
    return {"kind": "fleet", "strategy": strategy, **recipe}


def rates(technique: str = "") -> list[Candidate]:
    """Return the learning rates to choose from."""
    tasks = [task(rate, technique) for rate in RATES]
    return [Candidate(f"rate {t['lr']:g}", t, t) for t in tasks]


def ramps(steps: int, rate: float) -> list[Candidate]:
    """Return the schedules of dgc to choose from."""
    steady = task(rate, "dgc", keep_rate=True, sparsity=[SPARSITY])
    found = []
    for begin in (steps // 14, steps // 7):
        schedule = {"rampup_begin_step": begin, "rampup_step": steps // 14, "sparsity": RAMP}
        text = f"rate {rate:g}, {SPARSITY:.1%} sparsity, ramp-up from step {begin}"
        found.append(Candidate(text, task(rate, "dgc", keep_rate=True, **schedule), steady))
    return found


def ranks(steps: int, rate: float) -> list[Candidate]:
    """Return the ranks of powersgd to choose from."""
    found = []
    for rank in RANKS:
        late, steady = (
            task(rate, "powersgd", matrix_approximation_rank=rank, start_powerSGD_iter=start)
            for start in (steps // 14, 0)
        )
        found.append(Candidate(f"rate {rate:g}, rank {rank} from step {steps // 14}", late, steady))
    return found


def demo(trainings: Trainings) -> Way:
    """Choose the rate of demo; it is trained with one seed, since that takes five times as long."""
    tasks = [{**task(rate, "demo", top_k=TOP_K), "momentum": 0.0} for rate in SIGN_RATES]
    tried = [Candidate(f"rate {t['lr']:g}, {TOP_K} coefficients", t, t) for t in tasks]
    found = trainings.best("demo", tried)
    found.seeds = 1
    return found


def choose(trainings: Trainings, steps: int, window: int, *, has_demo: bool) -> list[Way]:
    """Choose the settings of every way on held-out training images."""
    ddp = trainings.best("DDP", rates())
    ddp.window = max(3, window // 10)
    rate = ddp.chosen.task["lr"]
    powersgd = trainings.best("powersgd", ranks(steps, rate))
    return [
        ddp,
        trainings.best("dgc", ramps(steps, rate)),
        # It diverges at the last of these three rates.
        trainings.best("signsgd", rates("signsgd")[:3]),
        *([demo(trainings)] if has_demo else []),
        powersgd,
        with_hook(powersgd.chosen),
    ]


def with_hook(powersgd: Candidate) -> Way:
    """Return DDP with torch's hook and the settings that were chosen for powersgd; only its speed
    is measured."""
    configs = {**powersgd.steady["strategy"]["powersgd_configs"], "start_powerSGD_iter": 2}
    asked = {**task(powersgd.task["lr"]), "power_sgd": configs}
    text = f"rank {configs['matrix_approximation_rank']}, speed only"
    return Way("DDP, torch's powerSGD_hook", Candidate(text, asked, asked), seeds=0)


def check_goals(
    rows: dict[str, dict[str, Any]], mbit: float, seeds: int, steps: int
) -> list[dict[str, Any]]:
    """Return the goals of dgc and whether they were reached."""
    dgc, ddp = rows["dgc"], rows["DDP"]
    rate, plain = dgc["steps_per_second"], ddp["steps_per_second"]
    sent, full = dgc["kb_per_step"], ddp["kb_per_step"]
    return [
        goal(
            f"steps/s of dgc at {SPARSITY:.1%} sparsity ({rate:.2f}), times those of DDP by hand "
            f"({plain:.2f}), {mbit:g} Mbit/s",
            rate / plain,
            5.0,
            at_least=True,
        ),
        goal(
            f"bytes a worker sends per step with dgc ({sent:.1f} kB), in per cent of DDP's "
            f"({full:.0f} kB)",
            100 * sent / full,
            1.0,
            at_least=False,
        ),
        goal(
            f"points of test accuracy lost by dgc ({dgc['accuracy']:.2f} %) against DDP "
            f"({ddp['accuracy']:.2f} %), mean of {seeds} seed(s), {steps} steps",
            ddp["accuracy"] - dgc["accuracy"],
            0.3,
            at_least=False,
        ),
    ]


def tell(ways: list[Way], asked: Any) -> None:
    """Print and write the figures."""
    rows = [way.row() for way in ways]
    by_name = {row["name"]: row for row in rows}
    goals = check_goals(by_name, asked.mbit, asked.seeds, asked.steps)
    limits = {"mbit": asked.mbit, "steps": asked.steps, "held_out": HELD_OUT}
    publish("dgc", rows, goals, f"1.6 M parameters, {asked.steps} steps", **limits)


def more_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--window", type=int, default=60, help="steps of a turn, a tenth for DDP")
    parser.add_argument(
        "--no_demo", action="store_true", help="without demo, whose trainings take longest"
    )


def main() -> None:
    """Measure, print the results and write the figures."""
    asked = options(__doc__, more_options)
    with workers(asked.data) as group:
        trainings = Trainings(group, asked.steps, asked.keep)
        ways = choose(trainings, asked.steps, asked.window, has_demo=not asked.no_demo)
        trainings.test(ways, asked.seeds)
    if not asked.rounds:
        return
    with workers(asked.data, asked.mbit) as group:
        measure(group, ways, asked.rounds, asked.window, UNTIMED)
    tell(ways, asked)


if __name__ == "__main__":
    main()
