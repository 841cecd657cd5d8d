"""Deep gradient compression over a slow network: step rate, bytes and accuracy against DDP.

    python bench/dgc.py [--seeds 3] [--steps 1400] [--mbit 100] [--data FILE]

Four workers, each on its own machine (network namespaces, needs root: see namespaces.py), train a
convolutional network with a wide layer (1.6 million parameters) on Fashion-MNIST. Speed and bytes
are measured over links of --mbit after the warm-up of the sparsity, with DDP and dgc interleaved;
accuracy is that of complete trainings over unlimited links, where DDP finishes in reasonable time.
Figures go to bench/results/dgc.json.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from goals import fashion_mnist_parser, goal, parsed, show
from local_sgd import RECIPE, WORKERS, started
from namespaces import machines
from record import write_record

HIDDEN = 2048
SPARSITY = 0.999
RAMP = [0.75, 0.9375, 0.984375, 0.996, SPARSITY]
"""The warm-up of the paper: each stage sends a quarter of the previous one."""
DDP: dict[str, Any] = {"kind": "ddp"}


def compressed(**schedule: Any) -> dict[str, Any]:
    """Return the strategy of dgc with this schedule."""
    configs = {"keep_rate": True, **schedule}
    return {"kind": "fleet", "strategy": {"dgc": True, "dgc_configs": configs}}


def speed(data: Path, mbit: float, rounds: int) -> list[dict[str, Any]]:
    """Interleave DDP and dgc over slow links; return goals about steps and bytes."""
    ways = {"DDP": (DDP, 6), "dgc": (compressed(sparsity=[SPARSITY]), 60)}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    sent: dict[str, list[float]] = {name: [] for name in ways}
    with machines(WORKERS, mbit=mbit, prefix="fxd") as four:
        group = started(data, four)
        for turn in range(rounds):
            for name, (way, steps) in ways.items():
                # The difference of a long and a short run excludes the cost of starting.
                runs = [
                    group.ask(**way, **RECIPE, seed=turn, steps=count, hidden=HIDDEN)
                    for count in (steps // 3, steps)
                ]
                rates[name].append(steps / runs[1]["seconds"])
                sent[name].append((runs[1]["sent"] - runs[0]["sent"]) / (steps - steps // 3))
                print(
                    f"{name}: {rates[name][-1]:.2f} steps/s, {sent[name][-1] / 1e3:.1f} kB/step",
                    file=sys.stderr,
                    flush=True,
                )
        group.stop()
    rate = {name: statistics.median(values) for name, values in rates.items()}
    volume = {name: statistics.median(values) for name, values in sent.items()}
    return [
        goal(
            f"steps/s of dgc at {SPARSITY:.1%} sparsity ({rate['dgc']:.2f}), times those of DDP by "
            f"hand ({rate['DDP']:.2f}), {mbit:g} Mbit/s",
            rate["dgc"] / rate["DDP"],
            5.0,
            at_least=True,
        ),
        goal(
            f"bytes a worker sends per step with dgc ({volume['dgc'] / 1e3:.1f} kB), in per cent "
            f"of DDP's ({volume['DDP'] / 1e3:.0f} kB)",
            100 * volume["dgc"] / volume["DDP"],
            1.0,
            at_least=False,
        ),
    ]


def accuracy(data: Path, seeds: int, steps: int) -> list[dict[str, Any]]:
    """Train completely in both ways; return the goal about accuracy."""
    ramp = compressed(rampup_begin_step=steps // 7, rampup_step=steps // 14, sparsity=RAMP)
    found: dict[str, list[float]] = {"DDP": [], "dgc": []}
    with machines(WORKERS, prefix="fxd") as four:
        group = started(data, four)
        for seed in range(seeds):
            for name, way in (("DDP", DDP), ("dgc", ramp)):
                group.ask(**way, **RECIPE, seed=seed, steps=steps, hidden=HIDDEN)
                found[name].append(group.ask(kind="test")["accuracy"])
                print(f"{name}, seed {seed}: {found[name][-1]:.2f} %", file=sys.stderr, flush=True)
        group.stop()
    ours, theirs = statistics.mean(found["dgc"]), statistics.mean(found["DDP"])
    what = (
        f"points of test accuracy lost by dgc ({ours:.2f} %) against DDP ({theirs:.2f} %), mean of "
        f"{seeds} seed(s), {steps} steps"
    )
    return [goal(what, theirs - ours, 0.3, at_least=False)]


def main() -> None:
    """Measure, print the goals and write the figures."""
    parser = fashion_mnist_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="turns over slow links")
    options = parsed(parser)
    goals = speed(options.data, options.mbit, options.rounds)
    goals += accuracy(options.data, options.seeds, options.steps)
    show(goals)
    write_record("dgc", goals=goals, mbit=options.mbit)


if __name__ == "__main__":
    main()
