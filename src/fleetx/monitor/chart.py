"""SVG charts of the reports: axes, lines over steps and bars, with colours from the page's style.

The charts load nothing and run no scripts: values are shown by the browser's own tooltips, with
one column of the chart per interval of steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 230
_LEFT, _RIGHT, _BOTTOM = 62, 12, 34
COLOURS = 7
"""The number of colours (classes s0, s1, …)."""

Mark = tuple[float, str]
"""A value on an axis, and its text in SVG."""


@dataclass(frozen=True)
class Series:
    """A named curve."""

    name: str
    points: Sequence[tuple[float, float]]


def number(value: float) -> str:
    """Format a number for an axis."""
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.3g}"
    text = f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return text.rstrip("0").rstrip(".")


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round tick values that cover a range."""
    if not high > low:
        span = abs(low) or 1.0
        low, high = low - span / 2, high + span / 2
    rough = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    size = next(s * magnitude for s in (1, 2, 2.5, 5, 10) if s * magnitude >= rough)
    first, last = math.floor(low / size), math.ceil(high / size)
    return [i * size for i in range(first, last + 1)]


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    unit: str = "",
    from_zero: bool = False,
    crops: bool = False,
) -> str:
    """Return a line chart over steps.

    Args:
        series: the curves; non-finite values are gaps.
        label: the accessible description of the chart.
        unit: appended to the values.
        from_zero: start the axis at 0.
        crops: draw outliers far above the others (such as a first step) at the upper edge.
    """
    finite = [(x, y) for each in series for x, y in each.points if math.isfinite(y)]
    if not finite:
        return '<p class="empty">Nothing was measured.</p>'
    xs, ys = [x for x, _ in finite], [y for _, y in finite]
    across = ticks(min(xs), max(xs)) if max(xs) > min(xs) else [min(xs)]
    across = [x for x in across if min(xs) <= x <= max(xs)] or [min(xs)]
    highest = min(max(ys), 2 * _usual_most(ys)) if crops else max(ys)
    up = ticks(0.0 if from_zero else min(ys), highest)
    frame = Frame((min(xs), max(xs)), (up[0], up[-1]))
    marks = [(value, f"{number(value)}{unit}") for value in up]
    parts = [frame.axes([(value, number(value)) for value in across], marks, "step")]
    parts += [_line(each, i, frame) for i, each in enumerate(series)]
    parts.append(_tooltips(series, frame, unit))
    return svg(WIDTH, HEIGHT, label, parts)


def _usual_most(values: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return sorted(values)[int(0.95 * (len(values) - 1))]


@dataclass(frozen=True)
class Frame:
    """The plot area of a chart: maps values to positions and draws the axes."""

    across: tuple[float, float]
    """The lowest and highest value of the x axis."""
    up: tuple[float, float]
    """The lowest and highest value of the y axis; higher values are drawn at the upper edge."""
    width: int = WIDTH
    height: int = HEIGHT
    top: int = 10
    """The margin above the plot area."""

    @property
    def bottom(self) -> int:
        """The position of the x axis."""
        return self.height - _BOTTOM

    def x(self, value: float) -> float:
        """Return the horizontal position of a value; the centre if the axis has only one value."""
        low, high = self.across
        share = (value - low) / (high - low) if high > low else 0.5
        return _LEFT + share * (self.width - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Return the vertical position of a value."""
        low, high = self.up
        share = min((value - low) / ((high - low) or 1.0), 1.0)
        return self.bottom - share * (self.bottom - self.top)

    def axes(self, across: Sequence[Mark], up: Sequence[Mark], title: str) -> str:
        """Return grid lines, marks and the title of the x axis."""
        right = self.width - _RIGHT
        parts = []
        for value, text in up:
            y = self.y(value)
            parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>')
            parts.append(f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" class="end">{text}</text>')
        for value, text in across:
            x = self.x(value)
            parts.append(f'<path class="axis" d="M{x:.1f} {self.bottom}v4"/>')
            parts.append(f'<text x="{x:.1f}" y="{self.bottom + 17}" class="middle">{text}</text>')
        parts.append(f'<path class="axis" d="M{_LEFT} {self.bottom}H{right}"/>')
        middle, below = (_LEFT + right) / 2, self.height - 4
        parts.append(f'<text x="{middle}" y="{below}" class="middle quiet">{title}</text>')
        return "".join(parts)


def svg(width: int, height: int, label: str, parts: Sequence[str]) -> str:
    """Return a picture of the given parts; `label` is its accessible description."""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def bar(x: float, y: float, width: float, height: float, colour: int, tip: str) -> str:
    """Return a bar with a tooltip."""
    return (
        f'<rect class="bar s{colour % COLOURS}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}"><title>{escape(tip)}</title></rect>'
    )


def _line(series: Series, index: int, frame: Frame) -> str:
    colour = f"s{index % COLOURS}"
    pieces: list[list[str]] = [[]]
    for x, y in series.points:
        if math.isfinite(y):
            pieces[-1].append(f"{frame.x(x):.1f},{frame.y(y):.1f}")
        elif pieces[-1]:
            pieces.append([])
    drawn = []
    for piece in pieces:
        if len(piece) == 1:  # a line of one point is invisible
            left, top = piece[0].split(",")
            drawn.append(f'<circle class="dot {colour}" cx="{left}" cy="{top}" r="3"/>')
        elif piece:
            drawn.append(f'<polyline class="line {colour}" points="{" ".join(piece)}"/>')
    return "".join(drawn)


def _tooltips(series: Sequence[Series], frame: Frame, unit: str) -> str:
    by_step: dict[float, list[str]] = {}
    for each in series:
        for x, y in each.points:
            name = f"{each.name}: " if each.name else ""
            by_step.setdefault(x, []).append(f"{name}{number(y)}{unit}")
    steps = sorted(by_step)
    width = max(3.0, (WIDTH - _LEFT - _RIGHT) / max(1, len(steps)))
    columns = [
        f'<rect class="column" x="{frame.x(x) - width / 2:.1f}" y="{frame.top}" '
        f'width="{width:.1f}" height="{frame.bottom - frame.top}"><title>step {number(x)}\n'
        f"{escape(chr(10).join(by_step[x]))}</title></rect>"
        for x in steps
    ]
    return "".join(columns)


def bars(rows: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], *, label: str) -> str:
    """Return a chart of horizontal stacked bars in milliseconds; `names` are those of the parts."""
    most = max((sum(parts) for _, parts in rows), default=0.0)
    if not most > 0:
        return '<p class="empty">Nothing was measured.</p>'
    across = ticks(0.0, most)
    row, top = 26, 4
    height = top + row * len(rows) + 38
    room = WIDTH - _LEFT - _RIGHT - 20

    def place(value: float) -> float:
        return _LEFT + 20 + value / across[-1] * room

    drawn = []
    for value in across:
        x = place(value)
        drawn.append(f'<path class="grid" d="M{x:.1f} {top}V{height - 34}"/>')
        drawn.append(f'<text x="{x:.1f}" y="{height - 19}" class="middle">{number(value)}</text>')
    middle = (_LEFT + WIDTH) / 2
    drawn.append(f'<text x="{middle}" y="{height - 5}" class="middle quiet">ms per step</text>')
    for i, (name, parts) in enumerate(rows):
        y, start = top + i * row, 0.0
        drawn.append(f'<text x="{_LEFT + 12}" y="{y + 17}" class="end">{escape(name)}</text>')
        for j, part in enumerate(parts):
            width = max(0.0, place(start + part) - place(start))
            tip = f"{name}, {names[j]}: {number(part)} ms"
            drawn.append(bar(place(start), y + 4, width, row - 8, j, tip))
            start += part
    return svg(WIDTH, height, label, drawn)


def legend(names: Sequence[str], colours: Sequence[int] = range(COLOURS)) -> str:
    """Return a legend with the names and colours of series."""
    items = [
        f'<li><span class="key s{colours[i % len(colours)]}"></span>{escape(name)}</li>'
        for i, name in enumerate(names)
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'
