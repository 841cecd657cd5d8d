"""SVG charts: lines over steps and stacked bars, with colours from the page's style.

The charts load nothing and run no scripts: values are shown by the browser's own tooltips, with
one column of the chart per interval of steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 10, 34
COLOURS = 6
"""The number of series with colours of their own (classes s0, s1, …)."""


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
    scale = _Scale(min(xs), max(xs), up[0], up[-1])
    parts = [_grid(across, up, scale, unit)]
    parts += [_line(each, i, scale) for i, each in enumerate(series)]
    parts.append(_tooltips(series, scale, unit))
    return _svg(HEIGHT, label, parts)


def _usual_most(values: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return sorted(values)[int(0.95 * (len(values) - 1))]


class _Scale:
    """The mapping from values to positions in the chart."""

    def __init__(self, left: float, right: float, low: float, high: float) -> None:
        self._left, self._across = left, (right - left) or 1.0
        self._low, self._up = low, (high - low) or 1.0
        self.is_point = right == left

    def x(self, value: float) -> float:
        if self.is_point:
            return (_LEFT + WIDTH - _RIGHT) / 2
        return _LEFT + (value - self._left) / self._across * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        value = min(value, self._low + self._up)
        return HEIGHT - _BOTTOM - (value - self._low) / self._up * (HEIGHT - _TOP - _BOTTOM)


def _svg(height: int, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _grid(across: Sequence[float], up: Sequence[float], scale: _Scale, unit: str) -> str:
    parts = []
    for value in up:
        y = scale.y(value)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>')
        parts.append(
            f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" class="end">{number(value)}{unit}</text>'
        )
    bottom = HEIGHT - _BOTTOM
    for value in across:
        x = scale.x(value)
        parts.append(f'<path class="axis" d="M{x:.1f} {bottom}v4"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 17}" class="middle">{number(value)}</text>')
    parts.append(f'<path class="axis" d="M{_LEFT} {bottom}H{WIDTH - _RIGHT}"/>')
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 4}" class="middle quiet">step</text>')
    return "".join(parts)


def _line(series: Series, index: int, scale: _Scale) -> str:
    colour = f"s{index % COLOURS}"
    pieces: list[list[str]] = [[]]
    for x, y in series.points:
        if math.isfinite(y):
            pieces[-1].append(f"{scale.x(x):.1f},{scale.y(y):.1f}")
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


def _tooltips(series: Sequence[Series], scale: _Scale, unit: str) -> str:
    by_step: dict[float, list[str]] = {}
    for each in series:
        for x, y in each.points:
            name = f"{each.name}: " if each.name else ""
            by_step.setdefault(x, []).append(f"{name}{number(y)}{unit}")
    steps = sorted(by_step)
    width = max(3.0, (WIDTH - _LEFT - _RIGHT) / max(1, len(steps)))
    columns = [
        f'<rect class="column" x="{scale.x(x) - width / 2:.1f}" y="{_TOP}" width="{width:.1f}" '
        f'height="{HEIGHT - _TOP - _BOTTOM}"><title>step {number(x)}\n'
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
    width = WIDTH - _LEFT - _RIGHT - 20

    def place(value: float) -> float:
        return _LEFT + 20 + value / across[-1] * width

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
            drawn.append(
                f'<rect class="bar s{j % COLOURS}" x="{place(start):.1f}" y="{y + 4}" '
                f'width="{max(0.0, place(start + part) - place(start)):.1f}" height="{row - 8}">'
                f"<title>{escape(name)}, {escape(names[j])}: {number(part)} ms</title></rect>"
            )
            start += part
    return _svg(height, label, drawn)


def legend(names: Sequence[str]) -> str:
    """Return a legend with the names and colours of series."""
    items = [
        f'<li><span class="key s{i % COLOURS}"></span>{escape(name)}</li>'
        for i, name in enumerate(names)
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'
