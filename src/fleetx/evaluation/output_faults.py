"""Faults visible in the results themselves: values changed, moved or rounded after the model.

Every function checks for one fault and returns a finding, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fleetx.evaluation.comparison import Comparison, OutputStatistics
from fleetx.evaluation.probe import Arrays, Finding, Probe

_FEW = 8
_MOST_PERMUTED = 4096


def batch_order(probe: Probe, comparison: Comparison) -> Finding | None:
    """Check whether results belong to other samples of the same request."""
    owners = {}
    for row in probe.rows.tolist():
        owner = _owner(probe, row)
        if owner is not None and owner != row:
            owners[row] = owner
    if len(owners) < max(2, 0.9 * len(probe.rows)):
        return None
    row, owner = next(iter(owners.items()))
    return Finding(
        "batch order",
        f"the answers of a request are in another order than its samples: sample "
        f"{probe.ids[row]!r} gets the vector of {probe.ids[owner]!r}, and so do "
        f"{len(owners)} of {len(probe.rows)} differing samples that were examined.",
    )


def _owner(probe: Probe, row: int) -> int | None:
    """Return the sample whose vectors are the result of `row`."""
    fits = np.ones(len(probe.ids), bool)
    for name, expected in probe.expected.items():
        tolerance = probe.tolerances.of(name, expected.dtype)
        x = expected.reshape(len(expected), -1).astype(np.float64)
        y = probe.actual[name][row].reshape(-1).astype(np.float64)
        limit = tolerance.atol + tolerance.rtol * np.abs(x).max(axis=1, initial=0.0)
        fits &= np.abs(x - y).max(axis=1, initial=0.0) <= limit
    found = np.flatnonzero(fits)
    return int(found[0]) if len(found) else None


def constant_answers(probe: Probe, comparison: Comparison) -> Finding | None:
    """Check whether every sample has the same result."""
    if len(probe.rows) < 3:
        return None
    for name in probe.expected:
        x, y = probe.flat(probe.expected, name), probe.flat(probe.actual, name)
        if not np.array_equal(y, np.repeat(y[:1], len(y), axis=0)) or len(np.unique(x, axis=0)) < 3:
            return None
    return Finding(
        "constant answers",
        f"the endpoint gives the same answer to all {len(probe.rows)} samples that were examined: "
        "it does not use their values.",
    )


def permuted_outputs(probe: Probe, comparison: Comparison) -> Finding | None:
    """Check whether the correct numbers are at other indices of the vector."""
    for name, statistics in comparison.outputs.items():
        if not statistics.differing or not 2 <= statistics.size <= _MOST_PERMUTED:
            continue
        x, y = probe.flat(probe.expected, name), probe.flat(probe.actual, name)
        limit = probe.limits(name)
        if not np.all(np.abs(np.sort(x, axis=1) - np.sort(y, axis=1)) <= limit):
            continue
        moved = _moves(x, y, limit)
        if moved:
            return Finding("permuted outputs", _permutation(name, statistics, moved))
    return None


def _moves(x: np.ndarray, y: np.ndarray, limit: np.ndarray) -> dict[int, int]:
    """Return the origin of the numbers at changed indices; empty if it is ambiguous."""
    moves = {}
    for place in np.flatnonzero(np.any(np.abs(x - y) > limit, axis=0)).tolist():
        sources = np.flatnonzero(np.all(np.abs(x - y[:, place : place + 1]) <= limit, axis=0))
        if not len(sources):
            return {}
        moves[place] = int(sources[0])
    return moves


def _permutation(name: str, statistics: OutputStatistics, moved: dict[int, int]) -> str:
    size = statistics.size
    shifts = {(source - place) % size for place, source in moved.items()}
    if len(moved) == 2:
        a, b = moved
        how = f"places {a} and {b} of {size} are swapped"
    elif all(place + source == size - 1 for place, source in moved.items()):
        how = f"all {size} places are in reverse order"
    elif len(shifts) == 1:
        how = f"all places are shifted by {shifts.pop()} of {size}"
    else:
        some = ", ".join(f"{place} holds {source}" for place, source in list(moved.items())[:4])
        how = f"{len(moved)} of {size} places hold numbers of others ({some}, ...)"
    return f"the numbers of output {name!r} are right but at other places: {how}."


def few_places(probe: Probe, comparison: Comparison) -> Finding | None:
    """Check whether only a few indices of the vector differ."""
    parts = []
    for name, statistics in comparison.outputs.items():
        places = np.flatnonzero(statistics.place_differing)
        if not len(places):
            if statistics.differing:
                return None  # too large for statistics per index
            continue
        if len(places) > min(_FEW, max(1, statistics.size // 10)):
            return None
        parts += [_place(name, statistics, int(place)) for place in places]
    if not parts:
        return None
    return Finding(
        "shifted outputs",
        f"{'; '.join(parts)}; all other places agree.",
    )


def _place(name: str, statistics: OutputStatistics, place: int) -> str:
    where = f"index {place} of {statistics.size} of output {name!r}"
    rows = int(statistics.place_differing[place])
    largest = float(statistics.place_max[place])
    if not np.isfinite(largest):
        return f"{where} is not finite on one side in {rows} of {statistics.rows} samples"
    # A constant shift of all samples that differ: the sum over them is rows times the maximum.
    mean = float(statistics.place_sum[place]) / rows
    if abs(largest - abs(mean)) <= 0.05 * largest:
        return f"{where} is shifted by {mean:+.4g} in {rows} of {statistics.rows} samples"
    return f"{where} is off by up to {largest:.4g} in {rows} of {statistics.rows} samples"


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _one_hot(x: np.ndarray) -> np.ndarray:
    return (x == x.max(axis=-1, keepdims=True)).astype(np.float64)


_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "softmax": _softmax,
    "the logarithm of softmax": lambda x: np.log(_softmax(x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "the exponential function": np.exp,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "scaling to length 1": lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True),
    "the absolute value": np.abs,
    "choosing the largest": _one_hot,
}


def activation(probe: Probe, comparison: Comparison) -> Finding | None:
    """Check whether the endpoint adds or omits a final activation."""
    swapped = replace(probe, expected=probe.actual, actual=probe.expected)
    for words, function in _ACTIVATIONS.items():
        with np.errstate(all="ignore"):
            added = _mapped(probe.expected, function)
            removed = _mapped(probe.actual, function)
        if probe.explained_by(added):
            return Finding(
                "activation",
                f"the endpoint applies {words} to the model's output: with it, the vectors agree "
                "with the answers.",
            )
        if swapped.explained_by(removed):
            return Finding(
                "activation",
                f"the endpoint omits {words} at the end of the model: applied to the answers, it "
                "makes them agree.",
            )
    return None


def _mapped(arrays: Arrays, function: Callable[[np.ndarray], np.ndarray]) -> Arrays:
    return {
        name: function(array.astype(np.float64)) if array.ndim > 1 else array
        for name, array in arrays.items()
    }


def scaled_outputs(probe: Probe, comparison: Comparison) -> Finding | None:
    """Check whether all numbers of an output are scaled or shifted."""
    found, parts = {}, []
    for name in probe.expected:
        x, y = probe.flat(probe.expected, name), probe.flat(probe.actual, name)
        if x.size < 3 or not (np.isfinite(x).all() and np.isfinite(y).all()):
            return None
        columns = np.stack([x.reshape(-1), np.ones(x.size)], axis=1)
        (slope, offset), *_ = np.linalg.lstsq(columns, y.reshape(-1), rcond=None)
        if abs(slope) < 1e-6:
            return None
        array = probe.expected[name].astype(np.float64)
        found[name] = slope * array + offset
        parts.append(f"output {name!r} = {slope:.4g} × expected {offset:+.4g}")
    if not probe.explained_by(found):
        return None
    return Finding(
        "scaled outputs", f"all numbers are scaled or shifted equally: {', '.join(parts)}."
    )


def rounded_outputs(probe: Probe, comparison: Comparison) -> Finding | None:
    """Check whether results have a lower precision than the model's type."""
    statistics = comparison.outputs.values()
    if any(each.cosine_min < 0.99 or each.not_finite for each in statistics):
        return None
    x = np.concatenate([probe.flat(probe.expected, name).reshape(-1) for name in probe.expected])
    y = np.concatenate([probe.flat(probe.actual, name).reshape(-1) for name in probe.expected])
    for words, rounded in _ROUNDINGS.items():
        if np.array_equal(rounded(y), y) and not np.array_equal(rounded(x), x):
            return Finding(
                "precision",
                f"the endpoint computes or answers with {words}: all its numbers have this "
                "precision, those of the saved model do not.",
            )
    return None


def as_bfloat16(x: np.ndarray) -> np.ndarray:
    """Return the numbers with the precision of bfloat16: the upper half of a float32, rounded."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    upper = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return upper.astype(np.uint32).view(np.float32).astype(x.dtype)


def as_float16(x: np.ndarray) -> np.ndarray:
    """Return the numbers with the precision of float16."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(x.dtype)


def _decimals(count: int) -> Callable[[np.ndarray], np.ndarray]:
    def rounded(x: np.ndarray) -> np.ndarray:
        # A result may have passed through float32, which does not represent the decimals exactly.
        exact = np.round(x, count)
        return np.where(np.abs(exact - x) <= 1e-7 * np.abs(x), x, exact)

    return rounded


_ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "whole numbers": np.round,
    "bfloat16": as_bfloat16,
    "float16": as_float16,
    **{f"{count} decimals": _decimals(count) for count in range(1, 6)},
}

OUTPUT_FAULTS: tuple[Callable[[Probe, Comparison], Finding | None], ...] = (
    constant_answers,
    batch_order,
    permuted_outputs,
    few_places,
    rounded_outputs,
    activation,
    scaled_outputs,
)
"""The order matters: an earlier fault often looks like a later one, too."""
