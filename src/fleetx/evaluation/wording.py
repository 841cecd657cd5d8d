"""Words and figures of a comparison, the same on the terminal and on the page."""

from __future__ import annotations

from fleetx.evaluation.compare import Difference, OutputStatistics

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
    """Return a difference in a few digits."""
    return "0" if value == 0 else f"{value:.3g}"


def cosine(value: float) -> str:
    """Return a cosine with the digits that tell it from 1; never 1 if it is not."""
    if value >= 1 - 1e-12:
        return "1"
    if value > 0.999:
        return f"1 - {1 - value:.1e}"
    return f"{value:.4f}"


def cells(statistics: OutputStatistics) -> list[str]:
    """Return the line of an output, under `COLUMNS`."""
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
    """Return what there is to say about an output, for a terminal of any width."""
    name, largest, mean, relative, least, middle, top, differ, tolerance = cells(statistics)
    at = f" ({statistics.max_sample}{place(statistics.max_place)})" if statistics.max else ""
    return [
        f"{name}: {differ} samples differ (tolerance {tolerance})",
        f"  difference: largest {largest}{at}, mean {mean}, relative to a sample's largest "
        f"{relative}",
        f"  cosine: least {least}, mean {middle}; same largest place: {top}",
    ]


def place(indices: tuple[int, ...]) -> str:
    """Return where in an output something is."""
    return f"[{', '.join(map(str, indices))}]" if indices else ""


def describe(difference: Difference) -> str:
    """Return a differing sample in one line."""
    more = f", {difference.count} numbers differ" if difference.count > 1 else ""
    return (
        f"{difference.sample}: {difference.output}{place(difference.place)} is "
        f"{difference.actual:.7g}, expected {difference.expected:.7g} "
        f"(off by {number(difference.size)}{more})"
    )
