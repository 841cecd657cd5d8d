"""Streaming statistics of the differences between two sets of vectors, output by output.

`Comparison.add()` takes the next rows of both sides and keeps sums, maxima, a histogram and one
record per index of a vector; memory depends on the size of a vector, never on their number.

A number differs if |actual - expected| > atol + rtol * s, where s is the largest |expected| of
that sample's output: rounding errors of sums are proportional to their largest terms, so a small
number in a vector of large ones is not compared by its own size. Integers must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetx.evaluation.evaluation_error import EvaluationError

Arrays = dict[str, np.ndarray]

# Half decades from 1e-12 to 1e4, plus everything below and above.
EDGES = np.power(10.0, np.arange(-24, 9) / 2.0)

# Statistics per index of a vector are kept up to this size: three numbers each, 24 MB.
_MOST_PLACES = 1 << 20


@dataclass(frozen=True)
class Tolerance:
    """The maximum error of a number: absolute, and relative to its sample's largest number."""

    atol: float = 1e-5
    rtol: float = 1e-5

    def __post_init__(self) -> None:
        for name, value in (("atol", self.atol), ("rtol", self.rtol)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} of a tolerance must be 0 or more, not {value:g}.")

    def __str__(self) -> str:
        return f"{self.atol:g} + {self.rtol:g}×largest" if self.rtol else f"{self.atol:g}"


# float16 and bfloat16 are far coarser than the usual tolerance.
_HALF = Tolerance(1e-3, 1e-2)
_EXACT = Tolerance(0.0, 0.0)


@dataclass(frozen=True)
class Tolerances:
    """The tolerance of every output: by name, one for all, or by type."""

    by_name: Mapping[str, Tolerance] = field(default_factory=dict)
    others: Tolerance | None = None

    def of(self, name: str, dtype: np.dtype) -> Tolerance:
        """Return the tolerance of an output."""
        chosen = self.by_name.get(name, self.others)
        if chosen is not None:
            return chosen
        if dtype.kind in "iub":
            return _EXACT
        return _HALF if dtype.itemsize < 4 else Tolerance()


@dataclass(frozen=True)
class Difference:
    """A sample whose result differs."""

    row: int
    sample: str
    output: str
    place: tuple[int, ...]
    """The position of the largest difference in the sample's output."""
    expected: float
    actual: float
    count: int
    """The number of differing numbers of this output in this sample."""

    @property
    def size(self) -> float:
        """The largest difference; infinite if one of the two numbers is not finite."""
        return _size(self.expected, self.actual)


def _size(expected: float, actual: float) -> float:
    difference = abs(actual - expected)
    return math.inf if math.isnan(difference) else difference


class OutputStatistics:
    """Statistics of the differences in one output."""

    def __init__(self, name: str, shape: tuple[int, ...], tolerance: Tolerance) -> None:
        self.name = name
        self.shape = shape
        self.tolerance = tolerance
        self.rows = self.differing_rows = self.differing = 0
        self.max = self.max_relative = 0.0
        self.max_place: tuple[int, ...] = ()
        self.max_sample = ""
        self.not_finite = 0
        self.histogram = np.zeros(len(EDGES) + 2, np.int64)  # [0]: exactly equal
        self.cosine_min = 1.0
        self.same_top = 0
        self._sum = self._cosine_sum = 0.0
        self._finite = 0
        self._moments = np.zeros(5)  # sums of x, y, xx, yy, xy
        self.size = math.prod(shape)
        kept = self.size if 0 < self.size <= _MOST_PLACES else 0
        self.place_max = np.zeros(kept)
        self.place_sum = np.zeros(kept)
        """Signed differences, summed over the samples."""
        self.place_differing = np.zeros(kept, np.int64)

    @property
    def mean(self) -> float:
        """The mean absolute difference of all finite pairs."""
        return self._sum / self._finite if self._finite else 0.0

    @property
    def cosine_mean(self) -> float:
        """The mean cosine between both vectors over the samples."""
        return self._cosine_sum / self.rows if self.rows else 1.0

    @property
    def has_top(self) -> bool:
        """Whether a vector has an argmax that could be a class."""
        return len(self.shape) == 1 and self.size > 1

    def line(self) -> tuple[float, float, float]:
        """Return correlation, slope and offset of actual = slope * expected + offset."""
        n = self._finite
        if not n:
            return 0.0, 1.0, 0.0
        x, y, xx, yy, xy = (float(v) for v in self._moments / n)
        var_x, var_y, covariance = xx - x * x, yy - y * y, xy - x * y
        if var_x <= 0 or var_y <= 0:
            return 0.0, 1.0, y - x
        slope = covariance / var_x
        return covariance / math.sqrt(var_x * var_y), slope, y - slope * x

    def add(self, expected: np.ndarray, actual: np.ndarray) -> np.ndarray:
        """Add the next rows, flat and as float64; return which numbers differ."""
        with np.errstate(invalid="ignore", over="ignore"):
            difference = actual - expected
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        difference[same] = 0.0  # inf - inf
        finite = np.isfinite(difference)
        size = np.abs(difference)
        size[~finite] = np.inf
        scale = np.max(np.abs(expected), axis=1, initial=0.0, where=np.isfinite(expected))[:, None]
        differs = size > self.tolerance.atol + self.tolerance.rtol * scale
        self._count(size, finite, same, differs)
        self._relative(size, scale)
        self._vectors(expected, actual, finite)
        if self.place_max.size:
            np.maximum(self.place_max, size.max(axis=0, initial=0.0), out=self.place_max)
            self.place_sum += np.where(finite, difference, 0.0).sum(axis=0)
            self.place_differing += differs.sum(axis=0)
        return differs

    def _count(
        self, size: np.ndarray, finite: np.ndarray, same: np.ndarray, differs: np.ndarray
    ) -> None:
        self.rows += len(size)
        self.differing += int(differs.sum())
        self.differing_rows += int(differs.any(axis=1).sum())
        self.not_finite += int(size.size - finite.sum())
        self._finite += int(finite.sum())
        self._sum += float(size[finite].sum())
        bins = np.searchsorted(EDGES, size[~same], side="right") + 1
        self.histogram += np.bincount(bins, minlength=len(self.histogram))
        self.histogram[0] += int(same.sum())

    def _relative(self, size: np.ndarray, scale: np.ndarray) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = size / scale
        relative[np.isnan(relative)] = 0.0  # 0 / 0
        self.max_relative = max(self.max_relative, float(relative.max(initial=0.0)))

    def _vectors(self, expected: np.ndarray, actual: np.ndarray, finite: np.ndarray) -> None:
        whole = finite & np.isfinite(expected)
        x, y = np.where(whole, expected, 0.0), np.where(whole, actual, 0.0)
        dot, xx, yy = (np.einsum("ij,ij->i", a, b) for a, b in ((x, y), (x, x), (y, y)))
        lengths = np.sqrt(xx * yy)
        # Two zero vectors have the same direction; a zero vector and another one do not.
        alone = np.where((xx == 0) & (yy == 0), 1.0, 0.0)
        cosine = np.divide(dot, lengths, out=alone, where=lengths > 0)
        cosine[~finite.all(axis=1)] = -1.0
        self._cosine_sum += float(cosine.sum())
        self.cosine_min = min(self.cosine_min, float(cosine.min(initial=1.0)))
        self._moments += (x.sum(), y.sum(), xx.sum(), yy.sum(), dot.sum())
        if self.has_top:
            self.same_top += int((expected.argmax(axis=1) == actual.argmax(axis=1)).sum())


class Comparison:
    """Incremental comparison of rows; see the module's docstring for the rule."""

    def __init__(self, tolerances: Tolerances, *, show: int = 10) -> None:
        self.tolerances = tolerances
        self.outputs: dict[str, OutputStatistics] = {}
        self.first: list[Difference] = []
        """The first samples that differ, at most `show` of each output."""
        self.problems: list[str] = []
        """Problems with the form of the responses, one sentence each."""
        self.rows = self.differing_rows = 0
        self._show = show

    @property
    def same(self) -> bool:
        """Whether everything so far agrees."""
        return not self.differing_rows and not self.problems

    def add(self, ids: Sequence[str], expected: Arrays, actual: Arrays) -> np.ndarray:
        """Add the next rows; return which of them differ."""
        differing = np.zeros(len(ids), bool)
        for name, array in paired(expected, actual, self._note).items():
            differing |= self._output(name, ids, expected[name], array)
        if self.problems:
            differing[:] = True
        self.rows += len(ids)
        self.differing_rows += int(differing.sum())
        return differing

    def _note(self, problem: str) -> None:
        if problem not in self.problems and len(self.problems) < self._show:
            self.problems.append(problem)

    def _output(
        self, name: str, ids: Sequence[str], expected: np.ndarray, actual: np.ndarray
    ) -> np.ndarray:
        if expected.shape[:1] != (len(ids),):
            raise EvaluationError(
                f"output {name!r} of the model has shape {expected.shape} for {len(ids)} samples; "
                "an evaluation needs one row per sample."
            )
        statistics = self.outputs.get(name)
        if statistics is None:
            tolerance = self.tolerances.of(name, expected.dtype)
            statistics = OutputStatistics(name, expected.shape[1:], tolerance)
            self.outputs[name] = statistics
        x = expected.reshape(len(ids), -1).astype(np.float64)
        y = actual.reshape(len(ids), -1).astype(np.float64)
        differs = statistics.add(x, y)
        self._largest(statistics, ids, x, y)
        rows: np.ndarray = np.any(differs, axis=1)
        for row in np.flatnonzero(rows).tolist():
            if sum(known.output == name for known in self.first) >= self._show:
                break
            place = _largest_place(x[row], y[row])
            self.first.append(
                Difference(
                    row=self.rows + row,
                    sample=ids[row],
                    output=name,
                    place=tuple(int(i) for i in np.unravel_index(place, statistics.shape)),
                    expected=float(x[row, place]),
                    actual=float(y[row, place]),
                    count=int(differs[row].sum()),
                )
            )
        return rows

    @staticmethod
    def _largest(
        statistics: OutputStatistics, ids: Sequence[str], x: np.ndarray, y: np.ndarray
    ) -> None:
        if not x.size:
            return
        flat = _largest_place(x.reshape(-1), y.reshape(-1))
        row, place = divmod(flat, x.shape[1])
        size = _size(float(x[row, place]), float(y[row, place]))
        if x[row, place] != y[row, place] and size > statistics.max:
            statistics.max = size
            statistics.max_sample = ids[row]
            statistics.max_place = tuple(int(i) for i in np.unravel_index(place, statistics.shape))


def _largest_place(expected: np.ndarray, actual: np.ndarray) -> int:
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.abs(actual - expected)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    size[np.isnan(size)] = np.inf
    size[same] = 0.0
    return int(size.argmax())


def paired(expected: Arrays, actual: Arrays, note: Callable[[str], None]) -> Arrays:
    """Return the comparable results by the names of `expected`; call `note` for the others.

    Servers choose names of outputs freely: if no name is known but the number matches, outputs are
    paired in order.
    """
    if len(expected) == len(actual) and not set(expected) & set(actual):
        actual = dict(zip(expected, actual.values(), strict=True))
    found: Arrays = {}
    for name, wanted in expected.items():
        if name not in actual:
            there = ", ".join(map(repr, actual)) or "none"
            note(f"the response lacks output {name!r}; its outputs are: {there}.")
        elif actual[name].dtype.kind not in "fiub":
            note(f"output {name!r} of the response holds {actual[name].dtype}, not numbers.")
        elif actual[name].shape[:1] != wanted.shape[:1]:
            rows = len(actual[name]) if actual[name].ndim else "no"
            note(f"output {name!r} of the response has {rows} rows for {len(wanted)} samples.")
        elif actual[name].shape != wanted.shape:
            note(
                f"output {name!r} has rows of shape {_form(actual[name])} in the response, but "
                f"{_form(wanted)} in the saved model."
            )
        else:
            found[name] = actual[name]
    return found


def _form(array: np.ndarray) -> str:
    return "×".join(map(str, array.shape[1:])) or "1"
