"""Some samples whose answers differ, kept to find out why: `Probe`.

An explanation is tried by computing what the endpoint would have answered if it were true; it holds
if that agrees with the real answers in every sample that differs, far better than the vectors do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fleetx.evaluation.compare import Tolerances, paired

Arrays = dict[str, np.ndarray]

# A true explanation may have rounding errors of its own, for example of another batch size.
_SLACK = 10.0
# ... but it explains most of the difference.
_REST = 0.1


@dataclass(frozen=True)
class Finding:
    """One thing that a difference looks like."""

    kind: str
    """A few words, the same for all findings of this sort."""
    sentence: str
    """What it looks like, and why."""


@dataclass(frozen=True)
class Probe:
    """Consecutive samples, some of which differ, with everything known about them."""

    ids: list[str]
    inputs: Arrays
    expected: Arrays
    actual: Arrays
    differing: np.ndarray
    """Which samples differ."""
    tolerances: Tolerances
    run: Callable[[Arrays], Arrays]
    """The model here."""
    variants: Callable[[], Iterator[tuple[str, Arrays]]]
    """The same samples prepared in other ways, with words for each."""

    def first(self, count: int) -> Probe:
        """Return a probe of the first samples that differ: enough to rule most things out."""
        rows = np.flatnonzero(self.differing)[:count]
        return Probe(
            ids=[self.ids[row] for row in rows],
            inputs={name: array[rows] for name, array in self.inputs.items()},
            expected={name: array[rows] for name, array in self.expected.items()},
            actual={name: array[rows] for name, array in self.actual.items()},
            differing=np.ones(len(rows), bool),
            tolerances=self.tolerances,
            run=self.run,
            variants=self.variants,
        )

    @cached_property
    def rows(self) -> np.ndarray:
        """The numbers of the samples that differ."""
        return np.flatnonzero(self.differing)

    @cached_property
    def before(self) -> float:
        """How far the answers are from the vectors, as `distance` measures it."""
        return self.distance(self.expected)

    def flat(self, arrays: Arrays, name: str) -> np.ndarray:
        """Return an output of the differing samples, a flat row each, as float64."""
        array = arrays[name][self.rows]
        return array.reshape(len(array), -1).astype(np.float64)

    def limits(self, name: str) -> np.ndarray:
        """Return how far each sample's numbers may be off, as a column."""
        tolerance = self.tolerances.of(name, self.expected[name].dtype)
        x = np.abs(self.flat(self.expected, name))
        scale = np.max(x, axis=1, initial=0.0, where=np.isfinite(x))
        return (tolerance.atol + tolerance.rtol * scale)[:, None]

    def distance(self, found: Arrays) -> float:
        """Return the mean difference between the answers and `found`, in units of the limits."""
        parts = []
        for name in self.expected:
            with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                off = np.abs(self.flat(found, name) - self.flat(self.actual, name))
                off = off / np.maximum(self.limits(name), 1e-30)
            parts.append(np.nan_to_num(off, nan=1e30, posinf=1e30).mean() if off.size else 0.0)
        return float(np.mean(parts))

    def explained_by(self, found: Arrays) -> bool:
        """Tell whether the endpoint would have answered `found`."""
        if paired(self.expected, found, lambda _: None).keys() != self.expected.keys():
            return False
        for name in self.expected:
            off = np.abs(self.flat(found, name) - self.flat(self.actual, name))
            if not bool(np.all(off <= _SLACK * self.limits(name))):
                return False
        return self.distance(found) <= _REST * self.before
