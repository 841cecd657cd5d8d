"""The cost of techniques that are switched off: steps with Fleet, with and without techniques.

    python bench/switched_off.py [--rounds 100]

One process trains the same tiny network in three ways, in alternating windows: with Fleet and every
technique switched off, with a Fleet without any techniques, and without Fleet, with torch's fused
SGD. The CPU time of the thread is measured. Figures go to bench/results/switched_off.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from goals import goal, show
from record import write_record
from torch import nn

from fleetx import fleet
from fleetx.step import compose

STEPS = 100
"""Steps per window."""


def network() -> nn.Module:
    """Return a network small enough to expose overhead."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def window(model: nn.Module, optimizer: Any) -> Callable[[], float]:
    """Return a function that trains some steps and returns the time they took."""
    x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))

    def run() -> float:
        start = time.thread_time()
        for _ in range(STEPS):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        return time.thread_time() - start

    return run


def with_fleet() -> Callable[[], float]:
    """Return windows of training with Fleet and all techniques off."""
    fleet.init(is_collective=True, strategy=fleet.DistributedStrategy())
    model = fleet.distributed_model(network())
    made = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return window(model, fleet.distributed_optimizer(made))


def without_techniques() -> Callable[[], float]:
    """Return the same with a Fleet without any techniques."""
    known = compose.known
    compose.known = tuple
    try:
        return with_fleet()
    finally:
        compose.known = known


def without_fleet() -> Callable[[], float]:
    """Return windows of training with PyTorch alone."""
    model = network()
    return window(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True))


def main() -> None:
    """Measure, print the goals and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    ways = {"off": with_fleet(), "unknown": without_techniques(), "bare": without_fleet()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for run in ways.values():
        run()
    for turn in range(options.rounds):
        for name in sorted(ways, reverse=bool(turn % 2)):
            times[name].append(ways[name]())

    # The fastest window is the least disturbed one.
    micro = {name: min(values) / STEPS * 1e6 for name, values in times.items()}
    goals = [
        goal(
            f"steps/s with all techniques switched off ({micro['off']:.0f} µs a step), times those "
            "of a Fleet that knows none",
            micro["unknown"] / micro["off"],
            1.0,
            at_least=True,
        ),
        goal(
            "µs that Fleet itself adds to a step of PyTorch",
            micro["off"] - micro["bare"],
            50,
            at_least=False,
        ),
    ]
    show(goals)
    write_record("switched_off", rounds=options.rounds, goals=goals)


if __name__ == "__main__":
    main()
