"""LocalSGD over a slow network: throughput, accuracy and bytes, with and without waiting.

    python bench/local_sgd.py [--seeds 3] [--steps 1400] [--rounds 7] [--mbit 100] [--slow_mbit 10]
                              [--data FILE]

Four workers, each on its own machine (network namespaces, needs root: see namespaces.py), train a
small convolutional network on Fashion-MNIST. Settings (learning rate, outer momentum, how averages
overlap) are chosen by one training each without the last 10,000 training images, on those images;
the chosen ones train on all training images, and accuracy is measured on the test images.
Hand-written DDP, torch's own parameter averager and, where its wheel is installed (`pip install
torchft`), torchft's DiLoCo run in the same way in the same run. Trainings
with the first seed, over slow links, give samples/s, bytes and accuracy; those with other seeds,
which only give accuracy, use unlimited links, since the arithmetic is the same. Ratios to torch and
to workers that never communicate come from short interleaved windows. The table goes to
bench/results/local_sgd.json, with a plot next to it (needs matplotlib: the extra "bench").

`--seeds 1 --steps 20 --rounds 1` only shows that everything runs.
"""

from __future__ import annotations

import json
import statistics
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from goals import fashion_mnist_parser, goal, parsed, show
from groups import GroupContestant
from namespaces import machines
from record import RESULTS, write_record

WORKERS = 4
INTERVALS = (1, 2, 4, 8, 16)
WINDOW = 32
"""Steps per window: two of the longest intervals."""
RECIPE = {"lr": 0.06, "decay": 5e-4}
RATES = (0.03, 0.06, 0.12)
ADAPTIVE = {"init_k_steps": 16}
LONG = 16
"""The interval of the ways with an outer momentum."""
MOMENTA = (0.3, 0.5, 0.7)
OVERLAPS: tuple[dict[str, Any], ...] = (
    {"overlap_steps": 8},
    {"overlap_steps": 16},
    {"overlap_steps": 8, "fragments": 2},
    {"overlap_steps": 8, "fragments": 2, "blend": 0.5, "keep_local_steps": False},
)
"""Delayed averages, and as the last one Streaming DiLoCo."""
HELD_OUT = 10_000
"""Training images that settings are chosen by."""
SEED = 1000
"""Of the trainings that settings are chosen by; those that are reported have 0, 1, …."""
NEVER, OVERLAP = "workers that never communicate", f"localsgd, k = {LONG}, outer momentum, overlap"


def local(**settings: Any) -> dict[str, Any]:
    """Return the strategy of LocalSGD with these settings."""
    return {"localsgd": True, "localsgd_configs": settings}


def ways(outer: dict[str, Any], overlap: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return all ways to train, by their names in tables, with the settings that were chosen."""
    found: dict[str, dict[str, Any]] = {
        NEVER: {"kind": "fleet", "strategy": local(k_steps=10**9)},
        "DDP by hand": {"kind": "ddp"},
    }
    for k in INTERVALS:
        found[f"localsgd, k = {k}"] = {"kind": "fleet", "strategy": local(k_steps=k)}
    adaptive = {"adaptive_localsgd": True, "adaptive_localsgd_configs": ADAPTIVE}
    found["adaptive_localsgd"] = {"kind": "fleet", "strategy": adaptive}
    name = f"localsgd, k = {LONG}, outer momentum"
    found[name] = {"kind": "fleet", "strategy": local(**outer)}
    found[OVERLAP] = {"kind": "fleet", "strategy": local(**outer, **overlap)}
    for bits in (8, 4):
        rounded = local(**outer, **overlap, exchange_bits=bits)
        found[f"{OVERLAP}, {bits} bits"] = {"kind": "fleet", "strategy": rounded}
    for k in INTERVALS:
        found[f"torch's averager, k = {k}"] = {"kind": "torch", "k": k}
    if find_spec("torchft") is not None:
        peer = {"kind": "torchft", "k": LONG, "outer_momentum": outer["outer_momentum"]}
        found[f"torchft's DiLoCo, k = {LONG}"] = {**peer, "delay": 0}
        found[f"torchft's DiLoCo, k = {LONG}, overlap"] = {**peer, "delay": LONG // 2}
    return found


class Group(GroupContestant):
    """Workers that run tasks one after the other."""

    def ask(self, **task: Any) -> dict[str, Any]:
        """Run a task on all workers; return rank 0's result and the bytes that one worker sent."""
        assert self.machines is not None
        before = self._all_sent()
        for process in self.processes:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        return {**answer, "sent": (self._all_sent() - before) / self.workers}

    def _all_sent(self) -> int:
        assert self.machines is not None
        return sum(self.machines.sent(i) for i in range(self.workers))


def started(data: Path, place: Any) -> Group:
    """Return a group of workers waiting for tasks."""
    group = Group(
        "workers", "local_sgd_worker.py", arguments=(str(data),), workers=WORKERS, machines=place
    )
    group.start()
    return group


def best(group: Group, name: str, tried: list[dict[str, Any]], steps: int) -> dict[str, Any]:
    """Return the task with the highest accuracy on held-out training images, and that accuracy."""
    found = []
    for task in tried:
        group.ask(**{**RECIPE, **task}, seed=SEED, steps=steps, held_out=HELD_OUT)
        accuracy = group.ask(kind="test", held_out=HELD_OUT)["accuracy"]
        found.append({"task": task, "accuracy": accuracy})
        print(f"{name}, {task}: {accuracy:.2f} % held out", file=sys.stderr, flush=True)
    return {**max(found, key=lambda each: each["accuracy"]), "tried": found}


def choose(group: Group, steps: int) -> dict[str, Any]:
    """Choose rate, outer momentum and overlap, one after another, on held-out images."""

    def task(**settings: Any) -> dict[str, Any]:
        return {"kind": "fleet", "strategy": local(**settings)}

    rate = best(group, "k = 1", [{**task(k_steps=1), "lr": lr} for lr in RATES], steps)
    RECIPE["lr"] = rate["task"]["lr"]
    outers = [{"k_steps": LONG, "outer_momentum": momentum} for momentum in MOMENTA]
    outer = best(group, "outer", [task(**each) for each in outers], steps)
    settings = outer["task"]["strategy"]["localsgd_configs"]
    overlap = best(group, "overlap", [task(**settings, **each) for each in OVERLAPS], steps)
    chosen = overlap["task"]["strategy"]["localsgd_configs"]
    return {
        "rate": rate,
        "outer": settings,
        "overlap": {key: value for key, value in chosen.items() if key not in settings},
        "tried": [*rate["tried"], *outer["tried"], *overlap["tried"]],
    }


def train(group: Group, name: str, way: dict[str, Any], seed: int, steps: int) -> dict[str, Any]:
    """Train once and return the results."""
    run = group.ask(**way, **RECIPE, seed=seed, steps=steps)
    run["accuracy"] = group.ask(kind="test")["accuracy"]
    run["rate"] = run["steps"] * group.facts["batch"] / run["seconds"]
    print(
        f"{name:<52} seed {seed}: {run['rate']:7.0f} samples/s, {run['accuracy']:.2f} %, "
        f"{run['sent'] / steps / 1e3:.1f} kB/step",
        file=sys.stderr,
        flush=True,
    )
    return run


Ways = dict[str, dict[str, Any]]


def first_seed(group: Group, known: Ways, steps: int) -> list[dict[str, Any]]:
    """Train in every way over slow links."""
    rows = []
    for name, way in known.items():
        run = train(group, name, way, 0, steps)
        rows.append(
            {
                "name": name,
                "samples_per_second": run["rate"],
                "accuracies": [run["accuracy"]],
                "accuracy": run["accuracy"],
                "kb_per_step": run["sent"] / steps / 1e3,
                "interval": run.get("interval", 1.0),
            }
        )
    return rows


def other_seeds(
    group: Group, known: Ways, rows: list[dict[str, Any]], seeds: int, steps: int
) -> None:
    """Add the accuracies of other seeds; peers only repeat the arithmetic and are left out."""
    for row in rows:
        way = known[row["name"]]
        if way["kind"] == "fleet" and row["name"] != NEVER:
            more = [train(group, row["name"], way, seed, steps) for seed in range(1, seeds)]
            row["accuracies"] += [run["accuracy"] for run in more]
            row["accuracy"] = statistics.mean(row["accuracies"])


def compare(group: Group, pair: Ways, rounds: int) -> dict[str, Any]:
    """Interleave two ways; return both medians and the median of the ratios, first to second."""
    seconds: dict[str, list[float]] = {name: [] for name in pair}
    names = list(pair)
    for turn in range(rounds):
        first, second = sorted(pair, reverse=bool(turn % 2))
        spent = dict.fromkeys(pair, 0.0)
        # Forward and backward order: a slow drift of the machine cancels out.
        for name in (first, second, second, first):
            run = group.ask(**pair[name], **RECIPE, seed=turn, steps=WINDOW)
            spent[name] += run["seconds"]
        for name, value in spent.items():
            seconds[name].append(value)
    samples = 2 * WINDOW * group.facts["batch"]
    ours, theirs = (seconds[name] for name in names)
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    print(f"{names[0]}: {ratio:.3f}x {names[1]}", file=sys.stderr, flush=True)
    return {
        "ours": samples / statistics.median(ours),
        "peer": samples / statistics.median(theirs),
        "ratio": ratio,
    }


def compare_with_torch(group: Group, known: Ways, rounds: int) -> list[dict[str, Any]]:
    """Compare with torch's averager at each interval."""
    rows = []
    for k in INTERVALS:
        names = f"localsgd, k = {k}", f"torch's averager, k = {k}"
        found = compare(group, {name: known[name] for name in names}, rounds)
        rows.append({"k": k, "torch": found.pop("peer"), **found})
    return rows


def compare_with_never(group: Group, known: Ways, rounds: int, mbit: float) -> list[dict[str, Any]]:
    """Compare the ways that overlap with workers that never communicate."""
    rows = []
    for name in known:
        if name.startswith(OVERLAP):
            found = compare(group, {name: known[name], NEVER: known[NEVER]}, rounds)
            rows.append({"name": name, "mbit": mbit, **found})
    return rows


def check_goals(
    rows: list[dict[str, Any]], windows: list[dict[str, Any]], bounds: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the goals and whether they were reached."""
    by_name = {row["name"]: row for row in rows}
    base = by_name["localsgd, k = 1"]
    last, adaptive = by_name["localsgd, k = 16"], by_name["adaptive_localsgd"]
    outer, overlap = by_name[f"localsgd, k = {LONG}, outer momentum"], by_name[OVERLAP]
    fastest = min(row["mbit"] for row in bounds), max(row["mbit"] for row in bounds)

    def speed(row: dict[str, Any]) -> float:
        return float(row["samples_per_second"] / base["samples_per_second"])

    def lost(row: dict[str, Any]) -> float:
        return float(base["accuracy"] - row["accuracy"])

    found = [
        ("samples/s at k = 16, times those at k = 1", speed(last), 4.0, True),
        ("samples/s when adaptive, times those at k = 1", speed(adaptive), 2.0, True),
        ("points of accuracy lost when adaptive", lost(adaptive), 0.25, False),
        ("points of accuracy lost at k = 16 with outer momentum", lost(outer), 0.25, False),
        ("points of accuracy lost with overlap", lost(overlap), 0.25, False),
    ]
    for mbit, limit in zip(fastest, (0.8, 0.95), strict=True):
        best_ratio = max(row["ratio"] for row in bounds if row["mbit"] == mbit)
        what = f"samples/s with overlap at {mbit:g} Mbit/s, times those without communication"
        found.append((what, best_ratio, limit, True))
    for row in windows:
        what = f"samples/s at k = {row['k']}, times those of torch's averager"
        found.append((what, row["ratio"], 1.0, True))
    return [goal(what, value, limit, at_least=high) for what, value, limit, high in found]


def plot(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    """Plot accuracy over throughput; without matplotlib, print a note."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        print("no plot: install matplotlib (the extra 'bench').", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    kinds = {
        "localsgd, k": ("o-", "tab:blue", "localsgd"),
        "torch's averager": ("s--", "tab:gray", "torch's averager (one seed)"),
        "DDP": ("D", "black", "DDP by hand (one seed)"),
        "adaptive": ("^", "tab:green", "adaptive_localsgd"),
        "outer": ("*", "tab:red", "localsgd, k = 16, outer momentum; with overlap; 8 and 4 bits"),
    }
    for kind, (mark, colour, label) in kinds.items():
        chosen = [
            r
            for r in rows
            if (kind in r["name"] if kind == "outer" else r["name"].startswith(kind))
            and (kind == "outer") == ("outer" in r["name"])
        ]
        x = [r["samples_per_second"] for r in chosen]
        y = [r["accuracy"] for r in chosen]
        spread = [
            [v - min(r["accuracies"]) for v, r in zip(y, chosen, strict=True)],
            [max(r["accuracies"]) - v for v, r in zip(y, chosen, strict=True)],
        ]
        size = 13 if mark == "*" else 7
        axes.errorbar(
            x, y, yerr=spread, fmt=mark, color=colour, label=label, capsize=3, markersize=size
        )
        for row, a, b in zip(chosen, x, y, strict=True):
            if " = " in row["name"] and kind != "outer":
                text = "k=" + row["name"].split(" = ")[1]
                shift = (6, 6) if kind == "localsgd, k" else (6, -13)
                axes.annotate(text, (a, b), xytext=shift, textcoords="offset points", color=colour)
    axes.set_xlabel("samples per second, four workers")
    axes.set_ylabel("test accuracy, % (mean; bars: all seeds)")
    axes.set_title(title)
    axes.margins(0.1)
    axes.grid(alpha=0.3)
    axes.legend(loc="best", fontsize=9)
    figure.savefig(path, dpi=120)
    print(f"wrote {path}", file=sys.stderr)


def main() -> None:
    """Train, compare, print the tables, write figures and plot."""
    parser = fashion_mnist_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="turns of interleaved windows")
    parser.add_argument("--slow_mbit", type=float, default=10, help="rate of slower links")
    options = parsed(parser)
    with machines(WORKERS, prefix="fxl") as four:
        group = started(options.data, four)
        chosen = choose(group, options.steps)
        known = ways(chosen["outer"], chosen["overlap"])
        group.stop()
    bounds = []
    with machines(WORKERS, mbit=options.slow_mbit, prefix="fxl") as four:
        group = started(options.data, four)
        bounds += compare_with_never(group, known, options.rounds, options.slow_mbit)
        group.stop()
    with machines(WORKERS, mbit=options.mbit, prefix="fxl") as four:
        group = started(options.data, four)
        bounds += compare_with_never(group, known, options.rounds, options.mbit)
        windows = compare_with_torch(group, known, options.rounds)
        rows = first_seed(group, known, options.steps)
        group.stop()
    with machines(WORKERS, prefix="fxl") as four:
        group = started(options.data, four)
        other_seeds(group, known, rows, options.seeds, options.steps)
        group.stop()
    goals = check_goals(rows, windows, bounds)
    for row in rows:
        print(
            f"{row['name']:<52} {row['samples_per_second']:8.0f} samples/s "
            f"{row['accuracy']:6.2f} % {row['kb_per_step']:7.1f} kB/step"
        )
    show(goals)
    write_record(
        "local_sgd",
        parameters=group.facts["parameters"],
        batch=group.facts["batch"],
        mbit=options.mbit,
        steps=options.steps,
        rows=rows,
        windows=windows,
        bounds=bounds,
        chosen=chosen["tried"],
        settings={**RECIPE, **chosen["outer"], **chosen["overlap"]},
        goals=goals,
    )
    title = f"Fashion-MNIST, four workers, {options.mbit:g} Mbit/s, {options.steps} steps"
    plot(rows, RESULTS / "local_sgd.png", title)


if __name__ == "__main__":
    main()
