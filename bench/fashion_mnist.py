"""Training on Fashion-MNIST, for benchmarks of communication over slow links.

Four workers, each on its own machine (network namespaces, needs root: see namespaces.py). Settings
are chosen by trainings without the last 10,000 training images, one each or one per seed, on those
images; the chosen ones train on all training images, and accuracy is measured on the test images.
These trainings run over unlimited links, since arithmetic does not depend on the network. Speed and
bytes come from short windows over slow links, in which all ways take turns.

With `--keep FILE`, accuracies are written to a file and not computed again, so that a benchmark can
be interrupted, and its trainings can run on a busy machine (`--rounds 0`) and the windows later on
an idle one. Delete the file when the code changes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contest import ROOT
from goals import show
from groups import GroupContestant
from namespaces import Machines, machines
from record import RESULTS, write_record

WORKERS = 4
HELD_OUT = 10_000
"""The number of held-out training images, by which settings are chosen."""
SEED = 1000
"""The first seed of trainings that settings are chosen by; those that are reported have 0, 1, …."""
RECIPE = {"lr": 0.06, "decay": 5e-4}
RATES = (0.03, 0.06, 0.12, 0.24)
Task = dict[str, Any]


def say(text: str) -> None:
    """Print the progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def options(text: str | None, more: Callable[[argparse.ArgumentParser], Any]) -> Any:
    """Return the options of a benchmark; `more` adds its own. The data file must exist."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0] if text else "")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each way")
    parser.add_argument("--steps", type=int, default=1400, help="steps of a training")
    parser.add_argument("--mbit", type=float, default=100, help="rate of each machine's link")
    parser.add_argument("--rounds", type=int, default=5, help="turns over slow links, or 0")
    parser.add_argument("--keep", type=Path, help="file of the accuracies computed so far")
    data = ROOT.parent / "shared" / "data" / "fashion-mnist.npz"
    parser.add_argument("--data", type=Path, default=data, help="Fashion-MNIST as one .npz")
    more(parser)
    found = parser.parse_args()
    if not found.data.exists():
        parser.error(
            f"{found.data} does not exist: pass a file with train_x, train_y, test_x and test_y of "
            "Fashion-MNIST by --data."
        )
    return found


class Group(GroupContestant):
    """Workers that run tasks one after the other."""

    def ask(self, **task: Any) -> dict[str, Any]:
        """Run a task on all workers; return rank 0's result and the bytes that one worker sent."""
        before = self._all_sent()
        for process in self.processes:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        return {**answer, "sent": (self._all_sent() - before) / self.workers}

    def _all_sent(self) -> int:
        assert self.machines is not None
        return sum(self.machines.sent(i) for i in range(self.workers))


def started(data: Path, place: Machines) -> Group:
    """Return a group of workers waiting for tasks."""
    script = "local_sgd_worker.py"
    group = Group("workers", script, arguments=(str(data),), workers=WORKERS, machines=place)
    group.start()
    return group


@contextmanager
def workers(data: Path, mbit: float | None = None) -> Iterator[Group]:
    """Start workers, each on its own machine, with links that are limited to a rate or not."""
    with machines(WORKERS, mbit=mbit, prefix="fxm") as four:
        group = started(data, four)
        yield group
        group.stop()


@dataclass
class Candidate:
    """Settings of one way to train."""

    settings: str
    task: Task
    """The task that workers run."""
    steady: Task
    """The same with compression complete from the start."""
    held_out: float = 0.0
    """Accuracy on the held-out images, in percent."""


@dataclass
class Way:
    """A way to train, and its figures."""

    name: str
    chosen: Candidate
    tried: Sequence[Candidate] = ()
    seeds: int | None = None
    """The number of seeds; None for all."""
    window: int | None = None
    """Steps of a window; None for the benchmark's default."""
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


class Trainings:
    """Complete trainings, each of which is run once."""

    def __init__(self, group: Group, steps: int, kept: Path | None) -> None:
        self._group, self._steps, self._path = group, steps, kept
        known = kept is not None and kept.exists()
        self._found: dict[str, float] = json.loads(kept.read_text()) if kept and known else {}

    def accuracy(self, task: Task, seed: int, held_out: int = 0) -> float:
        """Train; return the accuracy on the test images or the held-out ones, in percent."""
        asked = {**task, "seed": seed, "steps": self._steps, "held_out": held_out}
        key = json.dumps(asked, sort_keys=True)
        if key not in self._found:
            self._group.ask(**asked)
            self._found[key] = self._group.ask(kind="test", held_out=held_out)["accuracy"]
            if self._path is not None:
                self._path.write_text(json.dumps(self._found, indent=1) + "\n")
        return self._found[key]

    def best(self, name: str, tried: Sequence[Candidate], seeds: int = 1) -> Way:
        """Return the settings with the highest accuracy on held-out training images, the mean of
        some seeds."""
        for each in tried:
            found = [self.accuracy(each.task, SEED + i, HELD_OUT) for i in range(seeds)]
            each.held_out = statistics.mean(found)
            say(f"{name}, {each.settings}: {each.held_out:.2f} % of the held-out images")
        return Way(name, max(tried, key=lambda each: each.held_out), tried)

    def test(self, ways: Sequence[Way], seeds: int) -> None:
        """Train to the end with the chosen settings, on all training images."""
        for seed in range(seeds):
            for way in ways:
                if way.seeds is None or seed < way.seeds:
                    way.accuracies.append(self.accuracy(way.chosen.task, seed))
                    say(f"{way.name}, seed {seed}: {way.accuracies[-1]:.2f} % of the test images")


def measure(group: Group, ways: Sequence[Way], rounds: int, window: int, untimed: int = 1) -> None:
    """Measure speed and bytes of all ways in turns; a way with a window of its own only once."""
    for turn in range(rounds):
        for way in ways:
            if way.window is not None and turn:
                continue
            steps = way.window or window
            # The difference of a long and a short run excludes the bytes of starting.
            short, long = (
                group.ask(**way.chosen.steady, seed=turn, steps=n, untimed=untimed)
                for n in (steps // 3, steps)
            )
            way.rates.append(steps / long["seconds"])
            way.bytes.append((long["sent"] - short["sent"]) / (steps - steps // 3))
            say(f"{way.name}: {way.rates[-1]:.2f} steps/s, {way.bytes[-1] / 1e3:.1f} kB/step")


def publish(
    name: str, rows: list[dict[str, Any]], goals: list[dict[str, Any]], title: str, **facts: Any
) -> None:
    """Print the table and the goals; write the figures and the plot.

    The speed of a row is in steps per second or in samples per second.
    """
    for row in rows:
        unit = "samples" if "samples_per_second" in row else "steps"
        accuracy = "" if row["accuracy"] is None else f"{row['accuracy']:.2f} %"
        print(
            f"{row['name']:<52} {row[f'{unit}_per_second']:8.2f} {unit}/s "
            f"{row['kb_per_step']:9.1f} kB/step {accuracy:>8}  {row['settings']}"
        )
    show(goals)
    write_record(name, **facts, rows=rows, goals=goals)
    plot(rows, RESULTS / f"{name}.png", f"Fashion-MNIST, four workers, {title}")


def plot(rows: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    """Plot accuracy over bytes per step; without matplotlib, print a note."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        say("no plot: install matplotlib (the extra 'bench').")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5.5), layout="constrained")
    colours = pyplot.get_cmap("tab20").colors  # type: ignore[attr-defined]
    shown = [row for row in rows if row["accuracy"] is not None and row["kb_per_step"] > 0.5]
    for place, row in enumerate(shown):
        values = row["accuracies"]
        spread = [[row["accuracy"] - min(values)], [max(values) - row["accuracy"]]]
        axes.errorbar(
            row["kb_per_step"],
            row["accuracy"],
            yerr=spread,
            fmt="os^Dv"[place % 5],
            color=colours[place % len(colours)],
            capsize=3,
            label=row["name"],
        )
    axes.set_xscale("log")
    axes.set_xlabel("kB that a worker sends per step")
    axes.set_ylabel("test accuracy, % (mean; bars: all seeds)")
    axes.set_title(title)
    axes.margins(0.1)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(path, dpi=120)
    say(f"wrote {path}")
