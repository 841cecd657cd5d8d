"""LocalSGD over a slow network: throughput, accuracy and bytes, with and without waiting.

    python bench/local_sgd.py [--seeds 3] [--steps 1400] [--rounds 5] [--mbit 100] [--slow_mbit 10]
                              [--keep FILE] [--data FILE]

A small convolutional network on Fashion-MNIST; fashion_mnist.py describes the training and the
measurement.
The learning rate, the outer momentum and how averages overlap are chosen on held-out images.
Overlaps are chosen for each link: among those whose bytes the link carries during the delay, at the
speed that is the goal, the one with the best mean accuracy of three seeds. Accuracy on the test
images and measured speed play no part in it.
Hand-written DDP, torch's parameter averager and, if installed (`pip install torchft`), torchft's
DiLoCo run in the same way in the same run, with one seed. Ratios to torch and
to workers that never communicate come from pairs of windows. Figures go to
bench/results/local_sgd.json, with a plot next to them (needs matplotlib: the extra "bench").

`--seeds 1 --steps 20 --rounds 1` only shows that everything runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from fashion_mnist import (
    RATES,
    RECIPE,
    WORKERS,
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

from fleetx.kernels.rounded_blocks import message_bytes

INTERVALS = (1, 2, 4, 8, 16)
WINDOW = 32
"""Steps of a window of a pair: two of the longest intervals."""
LONG_WINDOW = 96
"""The same for averages that overlap: what is under way at the end of a window is waited for."""
ADAPTIVE = {"init_k_steps": 16}
LONG = 16
"""The interval of the ways with an outer momentum."""
MOMENTA = (0.3, 0.5, 0.7)
SELECTION_SEEDS = 3
"""Trainings by which each overlap is judged: seeds differ by more than most settings."""
SHARES: dict[str, Any] = {"exchange_bits": 4, "sum_by_shares": True}
STREAMING = {"fragments": 2, "blend": 0.5, "keep_local_steps": False}
OVERLAPS: tuple[dict[str, Any], ...] = (
    {"overlap_steps": 2, **SHARES},
    {"overlap_steps": 2, **SHARES, "outer_momentum": 0.6},
    {"overlap_steps": 3, **SHARES},
    {"overlap_steps": 2, **SHARES, "outer_momentum": 0.3},
    {"overlap_steps": 4, **SHARES, "exchange_bits": 8},
    {"overlap_steps": 4, "exchange_bits": 4},
    {"overlap_steps": 8, "exchange_bits": 8},
    {"overlap_steps": 13},
    {"overlap_steps": 4, **SHARES, **STREAMING},
    {"overlap_steps": 14, **SHARES},
    {"overlap_steps": 14, **SHARES, "outer_momentum": 0.3},
    {"overlap_steps": 14, **SHARES, "outer_momentum": 0.0},
    {"overlap_steps": 16, **SHARES, "outer_momentum": 0.3},
    {"overlap_steps": 14, **SHARES, "blend": 0.5, "keep_local_steps": False},
)
"""Delays that 100 or 10 Mbit/s allow for messages of a size, and Streaming DiLoCo; a delay adds to
what momentum does, and smaller messages need less of it."""
STEP = 0.0043
"""Seconds of a step of workers that never communicate, on the fastest idle machine with two cores
so far."""
PARAMETERS = 154_050
NEVER, OUTER = "workers that never communicate", f"localsgd, k = {LONG}, outer momentum"
OVERLAP = f"{OUTER}, overlap"
BOUNDS = {100.0: 0.95, 10.0: 0.8}
"""Of samples/s, the share of those without communication that is the goal, by Mbit/s."""


def limit_of(mbit: float) -> float:
    """Return the goal for a link: that of the fastest link of BOUNDS that is no faster than it."""
    known = [rate for rate in BOUNDS if rate <= mbit]
    return BOUNDS[max(known)] if known else min(BOUNDS.values())


def sent_by(settings: dict[str, Any]) -> float:
    """Return the bytes that a worker sends for one average of the parameters."""
    bits = settings.get("exchange_bits", 32)
    if bits == 32:
        return 2 * (WORKERS - 1) / WORKERS * 4 * PARAMETERS
    messages = (WORKERS - 1) * (2 / WORKERS if settings.get("sum_by_shares") else 1)
    return messages * message_bytes(PARAMETERS, bits)


def fits(settings: dict[str, Any], mbit: float) -> bool:
    """Return whether a link carries an average during the delay, if steps take as long as the goal
    allows. Fragments need as long: one matrix is 98 % of this network."""
    seconds = sent_by(settings) * 8 / (mbit * 1e6)
    allowed = STEP / limit_of(mbit)
    return seconds <= settings["overlap_steps"] * allowed


def local(rate: float, **settings: Any) -> Candidate:
    """Return LocalSGD with these settings."""
    task: Task = {**RECIPE, "lr": rate, "kind": "fleet"}
    task["strategy"] = {"localsgd": True, "localsgd_configs": settings}
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


def overlapping(
    trainings: Trainings,
    rate: float,
    overlaps: Mapping[str, Sequence[dict[str, Any]]],
    seeds: int = 1,
) -> list[Way]:
    """Choose rate and outer momentum, and then by name how averages overlap.

    Workers drift apart between averages, so a smaller rate than that of k = 1 is tried as well.
    """
    tried = [
        local(each, k_steps=LONG, outer_momentum=momentum)
        for each in (rate, rate / 2)
        for momentum in MOMENTA
    ]
    outer = trainings.best(OUTER, tried)
    rate, settings = rate_of(outer), settings_of(outer)
    found = [outer]
    for name, each in overlaps.items():
        tried = [local(rate, **{**settings, **more}) for more in each]
        found.append(trainings.best(name, tried, seeds))
    return found


def overlaps_for(links: Sequence[float]) -> dict[str, list[dict[str, Any]]]:
    """Return the overlaps to choose from for each link, by the name of the way.

    One that fits a slower link too is left to that: its delay is longer than necessary. If a link
    carries none in time, those with the smallest messages and a long delay are tried.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    left = list(OVERLAPS)
    smallest = min(map(sent_by, OVERLAPS))
    last = [e for e in OVERLAPS if sent_by(e) == smallest and e["overlap_steps"] >= LONG - 2]
    for mbit in sorted(links):
        fitting = [each for each in left if fits(each, mbit)] or last
        left = [each for each in left if each not in fitting]
        if fitting:
            found[way_for(mbit)] = fitting
    return found


def way_for(mbit: float) -> str:
    """Return the name of the overlap that is chosen for a link."""
    return f"{OVERLAP} for {mbit:g} Mbit/s"


def choose(trainings: Trainings, steps: int, links: Sequence[float]) -> dict[str, Way]:
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
    outer, *delayed_ones = overlapping(trainings, rate, overlaps_for(links), seeds=SELECTION_SEEDS)
    found += [outer, *delayed_ones]
    long_rate, settings = rate_of(outer), settings_of(outer)
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
    """Compare the overlap that was chosen for a link, and torchft's, with workers that never
    communicate."""
    rows = []
    for name, way in known.items():
        if name.endswith(("overlap", way_for(mbit))):
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
    for row in bounds:
        limit = limit_of(row["mbit"])
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
        assert group.facts["parameters"] == PARAMETERS
        trainings = Trainings(group, asked.steps, asked.keep)
        known = choose(trainings, asked.steps, (asked.mbit, asked.slow_mbit))
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
