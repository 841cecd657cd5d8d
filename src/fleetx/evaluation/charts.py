"""Charts of the evaluation report: the size of the differences, and their place in the vector."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fleetx.evaluation.comparison import EDGES, OutputStatistics
from fleetx.monitor.chart import Frame, Mark, bar, svg

# Colours of the page: within the tolerance, beyond it, exactly equal.
FINE, OFF, EQUAL = 0, 5, 6
_MOST_BARS = 215


def difference_histogram(statistics: OutputStatistics) -> str:
    """Return a histogram of the differences; both axes are logarithmic."""
    counts = statistics.histogram
    used = np.flatnonzero(counts[1:])
    # Nonempty decades, and those around the tolerance.
    low = min(int(used[0]) if len(used) else 12, 12)
    high = max(int(used[-1]) if len(used) else 16, 16)
    low -= low % 2
    bars = [("equal", int(counts[0]))]
    bars += [(_range(i), int(counts[1 + i])) for i in range(low, high + 1)]
    frame = _frame(len(bars), max(1.0, math.log10(max(count for _, count in bars) + 1)))
    # The label "equal" is below the first bars.
    decades = [i for i in range(low + 2, min(high, len(EDGES)) + 1) if i % 4 == 0]
    marks = [(i - low + 1, _power(round(math.log10(EDGES[i - 1])))) for i in decades]
    axes = frame.axes([(0.5, "equal"), *marks], _counts(frame), "absolute difference")
    shapes = []
    for i, (words, count) in enumerate(bars):
        colour = EQUAL if i == 0 else _bar_colour(low + i - 1, statistics)
        if count:
            tip = f"{words}: {count:,} numbers"
            shapes.append(_bar(frame, i, math.log10(count + 1), colour, tip))
    return _drawn(frame, axes, "numbers", shapes, f"Differences of output {statistics.name}")


def _bar_colour(edge: int, statistics: OutputStatistics) -> int:
    """Return the colour of a bar by the absolute tolerance; the relative one varies by sample."""
    if not statistics.differing:
        return FINE
    upper = EDGES[edge] if edge < len(EDGES) else math.inf
    return FINE if upper <= statistics.tolerance.atol * 1.0001 else OFF


def _range(i: int) -> str:
    low = f"{EDGES[i - 1]:.2g}" if i else "0"
    high = f"{EDGES[i]:.2g}" if i < len(EDGES) else "infinity"
    return f"{low} to {high}"


def difference_by_place(statistics: OutputStatistics) -> str:
    """Return a chart of the largest difference per index of the vector; empty for a scalar."""
    largest = statistics.place_max
    if largest.size < 2:
        return ""
    bins = min(largest.size, _MOST_BARS)
    starts = np.linspace(0, largest.size, bins + 1).astype(int)
    tops = np.array([largest[a:b].max() for a, b in zip(starts, starts[1:], strict=False)])
    shown = np.where(np.isfinite(tops), tops, 0.0)
    if not np.isfinite(tops).all():
        shown[~np.isfinite(tops)] = max(1.0, float(shown.max())) * 10
    positive = shown[shown > 0]
    high = math.ceil(math.log10(positive.max())) if positive.size else 0
    low = min(math.floor(math.log10(positive.min())), high - 1) if positive.size else -1
    low = max(low, high - 8)
    frame = _frame(bins, high - low)
    places = [round(part * (largest.size - 1) / 4) for part in range(5)]
    marks = [(min(bins - 1, p * bins // largest.size) + 0.5, str(p)) for p in places]
    up = [(e - low, _power(e)) for e in _few(low, high)]
    axes = frame.axes(marks, up, "index in the vector")
    shapes = []
    for i, (value, a, b) in enumerate(zip(tops, starts, starts[1:], strict=False)):
        if value <= 0:
            continue
        height = max(0.04 * (high - low), math.log10(shown[i]) - low)
        differs = bool(statistics.place_differing[a:b].any())
        where = f"index {a}" if b - a == 1 else f"indices {a} to {b - 1}"
        tip = f"{where}: up to {value:.3g}"
        shapes.append(_bar(frame, i, height, OFF if differs else FINE, tip))
    title = f"Differences by place of output {statistics.name}"
    return _drawn(frame, axes, "largest difference", shapes, title)


def _few(low: int, high: int) -> list[int]:
    step = max(1, (high - low + 4) // 5)
    return list(range(low, high + 1, step))


def _counts(frame: Frame) -> list[Mark]:
    top = int(frame.up[1])
    marks = [(math.log10(10**e + 1), f"{10**e:,}") for e in range(0, top + 1, max(1, top // 4))]
    return [(height, text) for height, text in marks if height <= frame.up[1] * 1.001]


def _frame(bars: int, high: float) -> Frame:
    return Frame((0, bars), (0, high), width=500, height=224, top=30)


def _bar(frame: Frame, i: int, height: float, colour: int, tip: str) -> str:
    left, top, width = frame.x(i), frame.y(height), frame.x(i + 1) - frame.x(i)
    gap = min(2.0, width * 0.15)
    return bar(left + gap / 2, top, max(width - gap, 1.0), frame.bottom - top, colour, tip)


def _power(exponent: int) -> str:
    return f"10<tspan dy='-4'>{exponent}</tspan>"


def _drawn(frame: Frame, axes: str, left: str, bars: Sequence[str], title: str) -> str:
    head = f'<text class="quiet" x="4" y="13">{left}</text>'
    return svg(frame.width, frame.height, title, [axes, head, *bars])
