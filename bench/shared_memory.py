"""Shared memory against Gloo: single all-reduces, and training of small networks.

    python bench/shared_memory.py [--rounds 12] [--only latency,bandwidth,training]

Workers have one thread each. A copy of the same bytes in memory bounds the bandwidth: the bus
bandwidth of an all-reduce counts each byte 2 (n - 1) / n times. Real Paddle takes part in the
training if the variable PADDLE262 names a Python that has it. Figures go to
bench/results/shared_memory.json.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from collective import NAMES, group
from contest import contest
from contestants.small_data import SHAPES
from groups import GroupContestant
from record import write_record
from static_graph import figures, row, show

LARGE = 100_000_000


def pair(workers: int, size: int) -> list[GroupContestant]:
    """Return groups that all-reduce some bytes through shared memory and through Gloo."""
    return [
        GroupContestant(name, "all_reduce.py", arguments=(backend, str(size)), workers=workers)
        for name, backend in (("fleetx, shm", "shm"), ("Gloo", "gloo"))
    ]


def latency(rounds: int) -> list[dict[str, Any]]:
    """Compare messages of 4 kB."""
    rows = []
    for workers in (2, 4):
        shm, gloo = pair(workers, 4096)
        contest([shm, gloo], steps=500, rounds=rounds, starts=3)
        rows.append(row(f"4 kB, {workers} workers, all-reduces/s", shm, gloo, 5.0))
    return rows


def copy_bandwidth(seconds: float = 2.0) -> float:
    """Return the bytes per second that one core copies."""
    torch.set_num_threads(1)
    source = torch.ones(LARGE // 4)
    target = torch.empty_like(source)
    rates = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        target.copy_(source)
        rates.append(LARGE / (time.perf_counter() - began))
    return sorted(rates)[len(rates) // 2]


def bandwidth(rounds: int) -> list[dict[str, Any]]:
    """Compare messages of 100 MB, and with a copy in memory."""
    rows = []
    for workers in (2, 4):
        shm, gloo = pair(workers, LARGE)
        contest([shm, gloo], steps=2, rounds=rounds, starts=2)
        rows.append(row(f"100 MB, {workers} workers, all-reduces/s", shm, gloo, 2.5))
        bus = shm.rate * LARGE * 2 * (workers - 1) / workers
        what = f"100 MB, {workers} workers, bus bandwidth, GB/s"
        copied = copy_bandwidth()
        rows.append(figures(what, bus / 1e9, "a copy in memory", copied / 1e9, 0.5, True))
    return rows


def training(rounds: int) -> list[dict[str, Any]]:
    """Compare the training of small networks with DDP by hand over Gloo."""
    rows = []
    for net, steps, starts, goal in (
        ("mlp", 100, 5, 2.0),
        ("bert", 5, 2, 1.1),
        ("resnet18", 4, 2, 1.2),
    ):
        ddp = group("DDP by hand, Gloo", "ddp", net)
        ours = [group("fleetx, eager, shm", "fleet", net)]
        paddle = []
        if net != "bert":  # which is a PyTorch module
            ours.append(group("fleetx, static, shm", "static", net))
        if net == "mlp" and os.environ.get("PADDLE262"):
            paddle.append(group("Paddle 2.6.2, static", "static", net))
            paddle[0].python, paddle[0].ours = os.environ["PADDLE262"], False
        for each in ours:
            each.variables["PADDLE_DISTRI_BACKEND"] = "shm"
        contest([*ours, ddp, *paddle], steps=steps, rounds=rounds, starts=starts)
        size = 2 * SHAPES[net][0][0]
        what = f"{NAMES[net]} samples/s"
        rows += [row(what, each, ddp, goal, size) for each in ours]
        rows += [row(what, ours[-1], each, 2.5, size) for each in paddle]
    return rows


def main() -> None:
    """Run the comparisons, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each contestant")
    parser.add_argument("--only", default="", help="parts to run, joined by commas")
    options = parser.parse_args()
    parts: dict[str, Callable[[int], list[dict[str, Any]]]] = {
        "latency": latency,
        "bandwidth": bandwidth,
        "training": training,
    }
    wanted = options.only.split(",") if options.only else list(parts)
    unknown = [name for name in wanted if name not in parts]
    if unknown:
        parser.error(f"--only knows {', '.join(parts)}, not {unknown[0]!r}.")
    load = round(os.getloadavg()[0], 1)
    rows = [line for name in wanted for line in parts[name](options.rounds)]
    show(rows, "Shared memory against Gloo")
    write_record("shared_memory", rows=rows, load=load)


if __name__ == "__main__":
    main()
