"""Texts and figures of a comparison, common to the terminal and the report."""

from __future__ import annotations

from fleetx.evaluation.comparison import Difference, OutputStatistics

COLUMNS = (
    "output",
    "largest",
    "mean",
    "relative",
    "cosine, least",
    "cosine, mean",
    "same top",
    "differ",
    "tolerance",
)


def number(value: float) -> str:
    """Format a difference with a few digits."""
    return "0" if value == 0 else f"{value:.3g}"


def cosine(value: float) -> str:
    """Format a cosine with enough digits to distinguish it from 1."""
    if value >= 1 - 1e-12:
        return "1"
    if value > 0.999:
        return f"1 - {1 - value:.1e}"
    return f"{value:.4f}"


def cells(statistics: OutputStatistics) -> list[str]:
    """Return the row of an output, for `COLUMNS`."""
    shape = "×".join(map(str, statistics.shape)) or "1"
    rows = max(statistics.rows, 1)
    top = f"{statistics.same_top / rows:.2%}" if statistics.has_top else "-"
    return [
        f"{statistics.name} [{shape}]",
        number(statistics.max),
        number(statistics.mean),
        number(statistics.max_relative),
        cosine(statistics.cosine_min),
        cosine(statistics.cosine_mean),
        top,
        f"{statistics.differing_rows} of {statistics.rows}",
        str(statistics.tolerance),
    ]


def lines(statistics: OutputStatistics) -> list[str]:
    """Return a description of an output, for a terminal of any width."""
    name, largest, mean, relative, least, middle, top, differ, tolerance = cells(statistics)
    at = f" ({statistics.max_sample}{place(statistics.max_place)})" if statistics.max else ""
    return [
        f"{name}: {differ} samples differ (tolerance {tolerance})",
        f"  difference: maximum {largest}{at}, mean {mean}, relative to a sample's maximum "
        f"{relative}",
        f"  cosine: minimum {least}, mean {middle}; same argmax: {top}",
    ]


def place(indices: tuple[int, ...]) -> str:
    """Format an index of an output."""
    return f"[{', '.join(map(str, indices))}]" if indices else ""


def describe(difference: Difference) -> str:
    """Describe a differing sample in one line."""
    more = f", {difference.count} numbers differ" if difference.count > 1 else ""
    return (
        f"{difference.sample}: {difference.output}{place(difference.place)} is "
        f"{difference.actual:.7g}, expected {difference.expected:.7g} "
        f"(off by {number(difference.size)}{more})"
    )
