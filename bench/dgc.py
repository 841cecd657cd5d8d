"""Compressed gradients over a slow network: dgc, signsgd, powersgd and demo against DDP.

    python bench/dgc.py [--seeds 3] [--steps 1400] [--rounds 5] [--mbit 100] [--data FILE]

Four workers, each on a machine of its own (network namespaces, needs root: see namespaces.py),
train a convolutional network with a wide layer (1.6 million parameters) on Fashion-MNIST. The
settings of each way, DDP's included, are chosen by one training each without the last 10,000
training images, on those images; dgc and powersgd have DDP's learning rate. The chosen ones train
on all training images, and accuracy is measured on the test images; both over unlimited links,
since DDP would take too long over slow ones. Speed and bytes are measured over links of --mbit once
compression is complete, all ways in turns, among them DDP with torch's own hook for PowerSGD.
Figures go to bench/results/dgc.json, with a plot of bytes against accuracy next to them (needs
matplotlib: the extra "bench").

`--seeds 1 --steps 14 --rounds 1 --window 6` only shows that everything runs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goals import fashion_mnist_parser, goal, parsed, show
from local_sgd import RECIPE, WORKERS, Group, started
from namespaces import machines
from record import RESULTS, write_record

HIDDEN = 2048
SPARSITY = 0.999
RAMP = [0.75, 0.9375, 0.984375, 0.996, SPARSITY]
"""The warm-up of the authors' paper: quarters of what was sent before."""
HELD_OUT = 10_000
"""Training images that settings are chosen by."""
SEED = 1000
"""Of the trainings that settings are chosen by; those that are reported have 0, 1, …."""
RATES = (0.03, 0.06, 0.12)
RANKS = (1, 2, 4)
SIGN_RATES = (3e-4, 1e-3, 3e-3)
"""Of demo, whose updates are signs."""
UNTIMED = 3
"""Steps before a measured window: torch's hook compresses from the third on."""


@dataclass
class Candidate:
    """Settings of one way to train."""

    settings: str
    task: dict[str, Any]
    """What workers are asked for."""
    steady: dict[str, Any]
    """The same with compression complete from the start."""
    held_out: float = 0.0
    """Accuracy on the held-out images, in percent."""


@dataclass
class Way:
    """A way to train: what it is measured at."""

    name: str
    chosen: Candidate
    tried: list[Candidate]
    accuracies: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    bytes: list[float] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Return the figures for the table."""
        return {
            "name": self.name,
            "settings": self.chosen.settings,
            "steps_per_second": statistics.median(self.rates),
            "kb_per_step": statistics.median(self.bytes) / 1e3,
            "accuracies": self.accuracies,
            "accuracy": statistics.mean(self.accuracies) if self.accuracies else None,
            "held_out": {each.settings: each.held_out for each in self.tried},
        }


def task(rate: float, technique: str = "", **configs: Any) -> dict[str, Any]:
    """Return the task of training with a technique, or with DDP."""
    recipe = {**RECIPE, "lr": rate}
    if not technique:
        return {"kind": "ddp", **recipe}
    return {
        "kind": "fleet",
        "strategy": {technique: True, f"{technique}_configs": configs},
        **recipe,
    }


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


def coefficients() -> list[Candidate]:
    """Return the rates and numbers of coefficients of demo to choose from."""
    found = []
    for rate in SIGN_RATES:
        for top_k in (8, 32):
            asked = {**task(rate, "demo", top_k=top_k), "momentum": 0.0}
            found.append(Candidate(f"rate {rate:g}, {top_k} coefficients", asked, asked))
    return found


def train(group: Group, task: dict[str, Any], **more: Any) -> float:
    """Train once; return the accuracy, on the held-out images if there are any."""
    group.ask(**{**task, **more}, hidden=HIDDEN)
    found: float = group.ask(kind="test", held_out=more.get("held_out", 0))["accuracy"]
    return found


def say(text: str) -> None:
    """Print the progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def choose(group: Group, steps: int) -> list[Way]:
    """Choose the settings of every way on held-out training images.

    dgc and powersgd, which approximate what DDP computes, have DDP's rate.
    """

    def best(name: str, tried: list[Candidate]) -> Way:
        for each in tried:
            each.held_out = train(group, each.task, seed=SEED, steps=steps, held_out=HELD_OUT)
            say(f"{name}, {each.settings}: {each.held_out:.2f} % of the held-out images")
        return Way(name, max(tried, key=lambda each: each.held_out), tried)

    ddp = best("DDP", rates())
    rate = ddp.chosen.task["lr"]
    return [
        ddp,
        best("dgc", ramps(steps, rate)),
        best("signsgd", rates("signsgd")),
        best("demo", coefficients()),
        best("powersgd", ranks(steps, rate)),
    ]


def test(group: Group, ways: list[Way], seeds: int, steps: int) -> None:
    """Train to the end with what was chosen, on all training images."""
    for seed in range(seeds):
        for way in ways:
            way.accuracies.append(train(group, way.chosen.task, seed=seed, steps=steps))
            say(f"{way.name}, seed {seed}: {way.accuracies[-1]:.2f} % of the test images")


def with_hook(powersgd: Candidate) -> Way:
    """Return DDP with torch's hook and the settings that were chosen for powersgd."""
    configs = {**powersgd.steady["strategy"]["powersgd_configs"], "start_powerSGD_iter": 2}
    asked = {**task(powersgd.task["lr"]), "power_sgd": configs}
    text = f"rank {configs['matrix_approximation_rank']}, speed only"
    return Way("DDP, torch's powerSGD_hook", Candidate(text, asked, asked), [])


def measure(group: Group, ways: list[Way], rounds: int, window: int) -> None:
    """Measure all ways in turns over slow links."""
    for turn in range(rounds):
        for way in ways:
            steps = max(3, window // 10) if way.name == "DDP" else window
            # The difference of a long and a short run leaves out the bytes that starting costs.
            short, long = (
                group.ask(**way.chosen.steady, seed=turn, steps=n, hidden=HIDDEN, untimed=UNTIMED)
                for n in (steps // 3, steps)
            )
            way.rates.append(steps / long["seconds"])
            way.bytes.append((long["sent"] - short["sent"]) / (steps - steps // 3))
            say(f"{way.name}: {way.rates[-1]:.2f} steps/s, {way.bytes[-1] / 1e3:.1f} kB/step")


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


def tell(ways: list[Way], options: argparse.Namespace) -> None:
    """Print the table and the goals; write the figures."""
    rows = [way.row() for way in ways]
    by_name = {row["name"]: row for row in rows}
    goals = check_goals(by_name, options.mbit, options.seeds, options.steps)
    for row in rows:
        accuracy = "" if row["accuracy"] is None else f"{row['accuracy']:.2f} %"
        print(
            f"{row['name']:<28} {row['steps_per_second']:8.2f} steps/s {row['kb_per_step']:9.1f} "
            f"kB/step {accuracy:>8}  {row['settings']}"
        )
    show(goals)
    write_record(
        "dgc", rows=rows, goals=goals, mbit=options.mbit, steps=options.steps, held_out=HELD_OUT
    )
    title = f"Fashion-MNIST, four workers, 1.6 M parameters, {options.steps} steps"
    plot(rows, RESULTS / "dgc.png", title)


def plot(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    """Plot accuracy over bytes per step; without matplotlib, print a note."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        say("no plot: install matplotlib (the extra 'bench').")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for row in rows:
        if row["accuracy"] is None:
            continue
        values = row["accuracies"]
        spread = [[row["accuracy"] - min(values)], [max(values) - row["accuracy"]]]
        axes.errorbar(row["kb_per_step"], row["accuracy"], yerr=spread, fmt="o", capsize=3)
        axes.annotate(
            row["name"],
            (row["kb_per_step"], row["accuracy"]),
            xytext=(6, 6),
            textcoords="offset points",
        )
    axes.set_xscale("log")
    axes.set_xlabel("kB that a worker sends per step")
    axes.set_ylabel("test accuracy, % (mean; bars: all seeds)")
    axes.set_title(title)
    axes.margins(0.15)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    say(f"wrote {path}")


def main() -> None:
    """Measure, print the results and write the figures."""
    parser = fashion_mnist_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="turns over slow links")
    parser.add_argument("--window", type=int, default=60, help="steps of a turn, a tenth for DDP")
    options = parsed(parser)
    data: Path = options.data
    with machines(WORKERS, prefix="fxd") as four:
        group = started(data, four)
        ways = choose(group, options.steps)
        test(group, ways, options.seeds, options.steps)
        group.stop()
    ways.append(with_hook(ways[-1].chosen))
    with machines(WORKERS, mbit=options.mbit, prefix="fxd") as four:
        group = started(data, four)
        measure(group, ways, options.rounds, options.window)
        group.stop()
    tell(ways, options)


if __name__ == "__main__":
    main()
