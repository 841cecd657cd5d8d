"""Samples whose results differ, kept for the diagnosis: `Probe`.

An explanation is tested by computing what the endpoint would return if it were true; it holds if
that agrees with the actual results in every differing sample, far better than the vectors do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fleetx.evaluation.comparison import Tolerances, paired

Arrays = dict[str, np.ndarray]

# A true explanation may have rounding errors, for example from another batch size.
_SLACK = 10.0
# ... but it explains most of the difference.
_REST = 0.1


@dataclass(frozen=True)
class Finding:
    """A possible explanation of a difference."""

    kind: str
    """A short name, the same for all findings of this kind."""
    sentence: str
    """The explanation, with its reason."""


@dataclass(frozen=True)
class Probe:
    """Consecutive samples, some of which differ, with all related data."""

    ids: list[str]
    inputs: Arrays
    expected: Arrays
    actual: Arrays
    differing: np.ndarray
    """Which samples differ."""
    tolerances: Tolerances
    run: Callable[[Arrays], Arrays]
    """The local model."""
    variants: Callable[[], Iterator[tuple[str, Arrays]]]
    """The same samples prepared in other ways, each with a description."""

    def first(self, count: int) -> Probe:
        """Return a probe of the first differing samples: enough to rule out most explanations."""
        rows = np.flatnonzero(self.differing)[:count]
        return replace(
            self,
            ids=[self.ids[row] for row in rows],
            inputs={name: array[rows] for name, array in self.inputs.items()},
            expected={name: array[rows] for name, array in self.expected.items()},
            actual={name: array[rows] for name, array in self.actual.items()},
            differing=np.ones(len(rows), bool),
        )

    @cached_property
    def rows(self) -> np.ndarray:
        """The indices of the samples that differ."""
        return np.flatnonzero(self.differing)

    @cached_property
    def before(self) -> float:
        """The distance between results and vectors, as measured by `distance`."""
        return self.distance(self.expected)

    def flat(self, arrays: Arrays, name: str) -> np.ndarray:
        """Return an output of the differing samples, a flat row each, as float64."""
        array = arrays[name][self.rows]
        return array.reshape(len(array), -1).astype(np.float64)

    def limits(self, name: str) -> np.ndarray:
        """Return the maximum error of each sample's numbers, as a column."""
        tolerance = self.tolerances.of(name, self.expected[name].dtype)
        x = np.abs(self.flat(self.expected, name))
        scale = np.max(x, axis=1, initial=0.0, where=np.isfinite(x))
        return (tolerance.atol + tolerance.rtol * scale)[:, None]

    def distance(self, found: Arrays) -> float:
        """Return the mean difference between the results and `found`, in units of the limits."""
        parts = []
        for name in self.expected:
            with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                off = np.abs(self.flat(found, name) - self.flat(self.actual, name))
                off = off / np.maximum(self.limits(name), 1e-30)
            parts.append(np.nan_to_num(off, nan=1e30, posinf=1e30).mean() if off.size else 0.0)
        return float(np.mean(parts))

    def explained_by(self, found: Arrays) -> bool:
        """Return whether `found` explains the endpoint's results."""
        if paired(self.expected, found, lambda _: None).keys() != self.expected.keys():
            return False
        for name in self.expected:
            off = np.abs(self.flat(found, name) - self.flat(self.actual, name))
            if not bool(np.all(off <= _SLACK * self.limits(name))):
                return False
        return self.distance(found) <= _REST * self.before
