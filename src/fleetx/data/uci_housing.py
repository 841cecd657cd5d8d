# ruff: noqa: PT028 - test() reads the test set; it is not a test.
"""UCI housing: prices of Boston homes as (13 features, scaled; price), the first 80 % to train."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fleetx.data.local_files import find_file

Sample = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
TRAIN_SHARE = 0.8

feature_names = [
    *("CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE"),
    *("DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT"),
]


def train(data_dir: str | Path | None = None) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the training homes."""
    rows = _load(data_dir)
    return _reader(rows[: int(len(rows) * TRAIN_SHARE)])


def test(data_dir: str | Path | None = None) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the test homes."""
    rows = _load(data_dir)
    return _reader(rows[int(len(rows) * TRAIN_SHARE) :])


def _load(data_dir: str | Path | None) -> np.ndarray[Any, Any]:
    path = find_file("uci_housing", "housing.data", data_dir=data_dir)
    try:
        values = np.array(path.read_text().split(), dtype="float64")
        rows = values.reshape(-1, len(feature_names) + 1)
    except ValueError as error:
        raise ValueError(f"{path} is not a table of 14 numbers per home: {error}") from error
    features = rows[:, :-1]
    spread = features.max(axis=0) - features.min(axis=0)
    # A constant feature carries no information; it becomes 0 instead of a division by zero.
    rows[:, :-1] = (features - features.mean(axis=0)) / np.where(spread == 0, 1, spread)
    return rows


def _reader(rows: np.ndarray[Any, Any]) -> Callable[[], Iterator[Sample]]:
    return lambda: ((row[:-1], row[-1:]) for row in rows)
