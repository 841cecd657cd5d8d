"""LocalSGD over a slow network: throughput, accuracy and bytes, with and without waiting.

    python bench/local_sgd.py [--seeds 3] [--steps 1400] [--rounds 5] [--mbit 100] [--slow_mbit 10]
                              [--keep FILE] [--data FILE]

A small convolutional network on Fashion-MNIST; fashion_mnist.py describes the training and the
measurement.
The learning rate, the outer momentum and how averages overlap are chosen on held-out images.
Hand-written DDP, torch's parameter averager and, if installed (`pip install torchft`), torchft's
DiLoCo run in the same way in the same run, with one seed. Ratios to torch and
to workers that never communicate come from pairs of windows. Figures go to
bench/results/local_sgd.json, with a plot next to them (needs matplotlib: the extra "bench").

`--seeds 1 --steps 20 --rounds 1` only shows that everything runs.
"""

from __future__ import annotations

import statistics
from importlib.util import find_spec
from typing import Any

from fashion_mnist import (
    RATES,
    RECIPE,
    Candidate,
    Group,
    Task,
    Trainings,
    Way,
    measure,
    options,
    publish,
    say,
    workers,
)
from goals import goal

INTERVALS = (1, 2, 4, 8, 16)
WINDOW = 32
"""Steps of a window of a pair: two of the longest intervals."""
LONG_WINDOW = 96
"""The same for averages that overlap: what is under way at the end of a window is waited for."""
ADAPTIVE = {"init_k_steps": 16}
LONG = 16
"""The interval of the ways with an outer momentum."""
MOMENTA = (0.3, 0.5, 0.7)
STREAMING = {"fragments": 2, "blend": 0.5, "keep_local_steps": False}
OVERLAPS: tuple[dict[str, Any], ...] = (
    {"overlap_steps": 4},
    {"overlap_steps": 8},
    {"overlap_steps": 4, "fragments": 2},
    {"overlap_steps": 4, **STREAMING},
    {"overlap_steps": 8, **STREAMING},
    {"overlap_steps": 4, "outer_momentum": 0.3},
    {"overlap_steps": 2, "exchange_bits": 8},
)
"""Delayed averages, in one piece or two, and Streaming DiLoCo; a delay adds to what momentum does,
and smaller messages need less of it."""
NEVER, OUTER = "workers that never communicate", f"localsgd, k = {LONG}, outer momentum"
OVERLAP = f"{OUTER}, overlap"


def local(rate: float, hidden: int | None = None, **settings: Any) -> Candidate:
    """Return LocalSGD with these settings."""
    task: Task = {**RECIPE, "lr": rate, "kind": "fleet"}
    task["strategy"] = {"localsgd": True, "localsgd_configs": settings}
    if hidden is not None:
        task["hidden"] = hidden
    words = [f"rate {rate:g}", *(f"{key} {value}" for key, value in settings.items())]
    return Candidate(", ".join(words), task, task)


def rate_of(way: Way) -> float:
    """Return the learning rate that was chosen."""
    rate: float = way.chosen.task["lr"]
    return rate


def settings_of(way: Way) -> dict[str, Any]:
    """Return the settings of LocalSGD that were chosen."""
    settings: dict[str, Any] = way.chosen.task["strategy"]["localsgd_configs"]
    return settings


def overlapping(trainings: Trainings, rate: float, hidden: int | None = None) -> list[Way]:
    """Choose rate and outer momentum, and then how averages overlap.

    Workers drift apart between averages, so a smaller rate than that of k = 1 is tried as well.
    """
    tried = [
        local(each, hidden, k_steps=LONG, outer_momentum=momentum)
        for each in (rate, rate / 2)
        for momentum in MOMENTA
    ]
    outer = trainings.best(OUTER, tried)
    rate, settings = rate_of(outer), settings_of(outer)
    tried = [local(rate, hidden, **{**settings, **each}) for each in OVERLAPS]
    return [outer, trainings.best(OVERLAP, tried)]


def choose(trainings: Trainings, steps: int) -> dict[str, Way]:
    """Return all ways to train by their names, with settings chosen on held-out images."""
    base = trainings.best("localsgd, k = 1", [local(rate, k_steps=1) for rate in RATES])
    rate = rate_of(base)
    recipe = {**RECIPE, "lr": rate}
    ddp = {**recipe, "kind": "ddp"}
    found = [
        Way(NEVER, local(rate, k_steps=10**9), seeds=0),
        Way("DDP by hand", Candidate(f"rate {rate:g}", ddp, ddp), seeds=1),
        base,
    ]
    found += [Way(f"localsgd, k = {k}", local(rate, k_steps=k)) for k in INTERVALS[1:]]
    strategy = {"adaptive_localsgd": True, "adaptive_localsgd_configs": ADAPTIVE}
    adaptive = {**recipe, "kind": "fleet", "strategy": strategy}
    # Its interval depends on the loss, so its speed is that of a complete training.
    found.append(
        Way("adaptive_localsgd", Candidate(f"rate {rate:g}", adaptive, adaptive), window=steps)
    )
    found += overlapping(trainings, rate)
    long_rate, settings = rate_of(found[-2]), settings_of(found[-2])
    for bits in (8, 4):
        rounded = local(long_rate, **settings, overlap_steps=LONG // 2, exchange_bits=bits)
        found.append(Way(f"{OVERLAP} of {LONG // 2} steps, {bits} bits", rounded))
    for k in INTERVALS:
        found.append(Way(f"torch's averager, k = {k}", peer(recipe, "torch", k), seeds=1))
    if find_spec("torchft") is not None:
        more = {"lr": long_rate, "outer_momentum": settings["outer_momentum"]}
        name = f"torchft's DiLoCo, k = {LONG}"
        found.append(Way(name, peer(recipe, "torchft", LONG, **more, delay=0), seeds=1))
        delayed = peer(recipe, "torchft", LONG, **more, delay=LONG // 2)
        found.append(Way(f"{name}, overlap", delayed, seeds=1))
    return {way.name: way for way in found}


def peer(recipe: Task, kind: str, k: int, **settings: Any) -> Candidate:
    """Return a peer of LocalSGD with these settings."""
    task = {**recipe, "kind": kind, "k": k, **settings}
    return Candidate(", ".join(f"{key} {value}" for key, value in settings.items()), task, task)


def compare(
    group: Group, ours: Way, theirs: Way, rounds: int, window: int = WINDOW
) -> dict[str, Any]:
    """Interleave two ways; return both medians and the median of the ratios, first to second."""
    seconds: dict[str, list[float]] = {ours.name: [], theirs.name: []}
    for turn in range(rounds):
        pair = (ours, theirs) if turn % 2 else (theirs, ours)
        spent = dict.fromkeys(seconds, 0.0)
        # Forward and backward order: a slow drift of the machine cancels out.
        for way in (*pair, *reversed(pair)):
            run = group.ask(**way.chosen.steady, seed=turn, steps=window)
            spent[way.name] += run["seconds"]
        for name, value in spent.items():
            seconds[name].append(value)
    samples = 2 * window * group.facts["batch"]
    first, second = seconds.values()
    ratio = statistics.median(b / a for a, b in zip(first, second, strict=True))
    say(f"{ours.name}: {ratio:.3f}x {theirs.name}")
    return {
        "ours": samples / statistics.median(first),
        "peer": samples / statistics.median(second),
        "ratio": ratio,
    }


def compare_with_torch(group: Group, known: dict[str, Way], rounds: int) -> list[dict[str, Any]]:
    """Compare with torch's averager at each interval."""
    rows = []
    for k in INTERVALS:
        ours, theirs = known[f"localsgd, k = {k}"], known[f"torch's averager, k = {k}"]
        found = compare(group, ours, theirs, rounds)
        rows.append({"k": k, "torch": found.pop("peer"), **found})
    return rows


def compare_with_never(
    group: Group, known: dict[str, Way], rounds: int, mbit: float
) -> list[dict[str, Any]]:
    """Compare the ways that overlap, and torchft's, with workers that never communicate."""
    rows = []
    for name, way in known.items():
        if name.endswith("overlap") or name.startswith(OVERLAP):
            found = compare(group, way, known[NEVER], rounds, LONG_WINDOW)
            rows.append({"name": name, "mbit": mbit, **found})
    return rows


def check_goals(
    rows: list[dict[str, Any]], windows: list[dict[str, Any]], bounds: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the goals and whether they were reached."""
    by_name = {row["name"]: row for row in rows}
    base = by_name["localsgd, k = 1"]
    last, adaptive = by_name["localsgd, k = 16"], by_name["adaptive_localsgd"]

    def speed(row: dict[str, Any]) -> float:
        return float(row["samples_per_second"] / base["samples_per_second"])

    def lost(row: dict[str, Any]) -> float:
        return float(base["accuracy"] - row["accuracy"])

    found = [
        ("samples/s at k = 16, times those at k = 1", speed(last), 4.0, True),
        ("samples/s when adaptive, times those at k = 1", speed(adaptive), 2.0, True),
        ("points of accuracy lost when adaptive", lost(adaptive), 0.25, False),
    ]
    for name in [name for name in by_name if name.startswith(OUTER)]:
        found.append((f"points of accuracy lost: {name}", lost(by_name[name]), 0.25, False))
    slow = min(row["mbit"] for row in bounds)
    for row in bounds:
        limit = 0.8 if row["mbit"] == slow else 0.95
        what = f"samples/s at {row['mbit']:g} Mbit/s, times those without communication: "
        found.append((what + row["name"], row["ratio"], limit, True))
    for row in windows:
        what = f"samples/s at k = {row['k']}, times those of torch's averager"
        found.append((what, row["ratio"], 1.0, True))
    return [goal(what, value, limit, at_least=high) for what, value, limit, high in found]


def tell(known: dict[str, Way], group: Group, asked: Any, **more: Any) -> None:
    """Print and write the figures."""
    rows = [way.row() for way in known.values()]
    for row in rows:
        row["samples_per_second"] = row.pop("steps_per_second") * group.facts["batch"]
    goals = check_goals(rows, more["windows"], more["bounds"])
    facts = {"parameters": group.facts["parameters"], "batch": group.facts["batch"]}
    limits = {"mbit": asked.mbit, "steps": asked.steps}
    title = f"{asked.mbit:g} Mbit/s, {asked.steps} steps"
    publish("local_sgd", rows, goals, title, **facts, **limits, **more)


def main() -> None:
    """Train, compare, print the tables, write figures and plot."""
    asked = options(
        __doc__,
        lambda parser: parser.add_argument(
            "--slow_mbit", type=float, default=10, help="rate of slower links"
        ),
    )
    with workers(asked.data) as group:
        trainings = Trainings(group, asked.steps, asked.keep)
        known = choose(trainings, asked.steps)
        trainings.test(list(known.values()), asked.seeds)
    if not asked.rounds:
        return
    with workers(asked.data, asked.slow_mbit) as group:
        bounds = compare_with_never(group, known, asked.rounds, asked.slow_mbit)
    with workers(asked.data, asked.mbit) as group:
        bounds += compare_with_never(group, known, asked.rounds, asked.mbit)
        windows = compare_with_torch(group, known, asked.rounds)
        measure(group, list(known.values()), asked.rounds, 3 * WINDOW)
        tell(known, group, asked, windows=windows, bounds=bounds)


if __name__ == "__main__":
    main()
