"""Charts of the evaluation report: SVG text, without scripts or other files.

Colours come from the page's style sheet, by class, so that charts also support dark mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from fleetx.evaluation.comparison import EDGES, OutputStatistics

_WIDTH, _HEIGHT = 500, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 30, 50
_MOST_BARS = 215


def difference_histogram(statistics: OutputStatistics) -> str:
    """Return a histogram of the differences; both axes are logarithmic."""
    counts = statistics.histogram
    used = np.flatnonzero(counts[1:])
    # Nonempty decades, and at least some room for the tolerance.
    low = min(int(used[0]) if len(used) else 12, 12)
    high = max(int(used[-1]) if len(used) else 16, 16)
    low -= low % 2
    bars = [("equal", int(counts[0]))]
    bars += [(_range(i), int(counts[1 + i])) for i in range(low, high + 1)]
    chart = _Chart(len(bars), max(1.0, math.log10(max(count for _, count in bars) + 1)))
    shapes = [chart.axes(_counts(chart), "numbers", "absolute difference")]
    for i, (words, count) in enumerate(bars):
        kind = "equal" if i == 0 else _bar_kind(low + i - 1, statistics)
        tip = f"{words}: {count:,} numbers"
        shapes.append(chart.bar(i, math.log10(count + 1), kind, tip))
    shapes.append(chart.label(0, "equal"))
    for i in range(low, high + 1):
        # The label "equal" takes the room below the first bars.
        if i % 4 == 0 and low + 2 <= i <= len(EDGES):
            exponent = round(math.log10(EDGES[i - 1]))
            shapes.append(chart.tick(i - low + 1, f"10<tspan dy='-4'>{exponent}</tspan>"))
    return chart.svg(shapes, f"Differences of output {statistics.name}")


def _bar_kind(edge: int, statistics: OutputStatistics) -> str:
    """Return whether a bar is inside the absolute tolerance; the relative one varies by sample."""
    if not statistics.differing:
        return "fine"
    upper = EDGES[edge] if edge < len(EDGES) else math.inf
    return "fine" if upper <= statistics.tolerance.atol * 1.0001 else "off"


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
    chart = _Chart(bins, high - low)
    marks = [(e - low, f"10<tspan dy='-4'>{e}</tspan>") for e in _few(low, high)]
    shapes = [chart.axes(marks, "largest difference", "index in the vector")]
    for i, (value, a, b) in enumerate(zip(tops, starts, starts[1:], strict=False)):
        if value <= 0:
            continue
        height = max(0.04 * (high - low), math.log10(shown[i]) - low)
        differs = bool(statistics.place_differing[a:b].any())
        where = f"index {a}" if b - a == 1 else f"indices {a} to {b - 1}"
        tip = f"{where}: up to {value:.3g}"
        shapes.append(chart.bar(i, height, "off" if differs else "fine", tip))
    for part in range(5):
        index = round(part * (largest.size - 1) / 4)
        shapes.append(chart.label(min(bins - 1, index * bins // largest.size), str(index)))
    return chart.svg(shapes, f"Differences by place of output {statistics.name}")


def _few(low: int, high: int) -> list[int]:
    step = max(1, (high - low + 4) // 5)
    return list(range(low, high + 1, step))


def _counts(chart: _Chart) -> list[tuple[float, str]]:
    top = int(chart.top)
    return [(math.log10(10**e + 1), f"{10**e:,}") for e in range(0, top + 1, max(1, top // 4))]


class _Chart:
    """Layout of bars of given heights between two axes."""

    def __init__(self, bars: int, top: float) -> None:
        self.top = top
        self._step = (_WIDTH - _LEFT - _RIGHT) / bars

    def x(self, i: float) -> float:
        return _LEFT + i * self._step

    def y(self, height: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * min(height / self.top, 1.0)

    def bar(self, i: int, height: float, kind: str, tip: str) -> str:
        if height <= 0:
            return ""
        gap = min(2.0, self._step * 0.15)
        top, width = self.y(height), max(self._step - gap, 1.0)
        size = f'width="{width:.2f}" height="{_HEIGHT - _BOTTOM - top:.2f}"'
        at = f'x="{self.x(i) + gap / 2:.2f}" y="{top:.2f}"'
        return f'<rect class="{kind}" {at} {size}><title>{escape(tip)}</title></rect>'

    def tick(self, i: float, text: str) -> str:
        """Write below the left edge of a bar."""
        return f'<text x="{self.x(i):.1f}" y="{_HEIGHT - 30}" text-anchor="middle">{text}</text>'

    def label(self, i: float, text: str) -> str:
        """Write below the middle of a bar."""
        return self.tick(i + 0.5, escape(text))

    def axes(self, marks: Sequence[tuple[float, str]], left: str, below: str) -> str:
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        parts = []
        for height, text in marks:
            if height > self.top * 1.001:
                continue
            y = self.y(height)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        middle = (_LEFT + right) / 2
        parts.append(
            f'<text class="name" x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{below}</text>'
        )
        parts.append(f'<text class="name" x="4" y="13">{left}</text>')
        return "".join(parts)

    @staticmethod
    def svg(shapes: list[str], title: str) -> str:
        return (
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
            f"{''.join(shapes)}</svg>"
        )
