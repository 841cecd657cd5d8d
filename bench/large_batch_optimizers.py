"""Steps of LARS and LAMB against torch's fused SGD and Adam, in one process.

    python bench/large_batch_optimizers.py [--rounds 15] [--threads 1]

Two lists of parameters: those of ResNet-50 (161 tensors, most of them small), and those of an MLP
of eight layers with 2048 units. With one thread the CPU time of the thread is measured, which other
load on the machine affects less. Figures go to bench/results/large_batch_optimizers.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from record import write_record
from static_graph import figures, show
from torch import nn

from fleetx.techniques.lamb import Lamb
from fleetx.techniques.lars import Lars

GOAL = 1.3


def resnet50() -> list[tuple[int, ...]]:
    """Return the shapes of ResNet-50's parameters."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    before = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            kernels = [(width, before, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            if block == 0:
                kernels.append((4 * width, before, 1, 1))
            for kernel in kernels:
                shapes += [kernel, (kernel[0],), (kernel[0],)]
            before = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def mlp() -> list[tuple[int, ...]]:
    """Return the shapes of an MLP's parameters."""
    return [(2048, 2048), (2048,)] * 8


def parameters(shapes: list[tuple[int, ...]]) -> list[nn.Parameter]:
    """Return parameters with gradients."""
    made = [nn.Parameter(torch.randn(shape) * 0.02) for shape in shapes]
    for parameter in made:
        parameter.grad = torch.randn_like(parameter) * 0.01
    return made


MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "LARS": lambda p: Lars(p, lr=1e-6),
    "fused SGD": lambda p: torch.optim.SGD(p, lr=1e-6, momentum=0.9, weight_decay=1e-4, fused=True),
    "LAMB": lambda p: Lamb(p, lr=1e-6),
    "fused Adam": lambda p: torch.optim.Adam(p, lr=1e-6, fused=True),
}


def measure(shapes: list[tuple[int, ...]], rounds: int, clock: Callable[[], float]) -> Any:
    """Return the times of steps, with all optimizers interleaved in every round."""
    optimizers = {name: make(parameters(shapes)) for name, make in MAKERS.items()}
    times: dict[str, list[float]] = {name: [] for name in optimizers}
    for optimizer in optimizers.values():
        optimizer.step()
    for _ in range(rounds):
        for name, optimizer in optimizers.items():
            start = clock()
            optimizer.step()
            times[name].append(clock() - start)
    return times


def main() -> None:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    rows = []
    for model, shapes in (("ResNet-50", resnet50()), ("MLP 8x2048", mlp())):
        times = measure(shapes, options.rounds, clock)
        for ours, peer in (("LARS", "fused SGD"), ("LAMB", "fused Adam")):
            mine, theirs = (statistics.median(times[name]) for name in (ours, peer))
            what = f"{model}, ms per step"
            line = figures(what, mine * 1000, peer, theirs * 1000, GOAL, False)
            rows.append({**line, "ours_name": ours})
    show(rows, "Large-batch optimizers")
    write_record(
        "large_batch_optimizers", rounds=options.rounds, threads=options.threads, rows=rows
    )


if __name__ == "__main__":
    main()
