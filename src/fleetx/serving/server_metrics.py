"""Metrics of a running server in Prometheus' text format.

Only the event loop changes them, so no locks are needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = []
    for name, value in zip(names, values, strict=True):
        quoted = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        pairs.append(f'{name}="{quoted}"')
    return "{" + ",".join(pairs) + "}" if pairs else ""


class Counter:
    """A counter of events, per combination of labels."""

    kind = "counter"

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self._names = tuple(labels)
        self._counts: dict[tuple[str, ...], int] = {} if labels else {(): 0}

    def add(self, *labels: str) -> None:
        """Count one event."""
        self._counts[labels] = self._counts.get(labels, 0) + 1

    def lines(self, name: str) -> list[str]:
        """Return the samples."""
        return [f"{name}{_labels(self._names, k)} {n}" for k, n in sorted(self._counts.items())]


class Histogram:
    """A histogram of values."""

    kind = "histogram"

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str) -> list[str]:
        """Return the samples: cumulative counts per bucket, the sum and the total count."""
        found, below = [], 0
        for bound, count in zip((*map(repr, self._bounds), "+Inf"), self._counts, strict=True):
            below += count
            found.append(f'{name}_bucket{{le="{bound}"}} {below}')
        return [*found, f"{name}_sum {self._sum!r}", f"{name}_count {below}"]


class Gauge:
    """A number that is read when metrics are requested."""

    kind = "gauge"

    def __init__(self, value: Callable[[], float], **labels: str) -> None:
        self._value = value
        self._labels = _labels(tuple(labels), tuple(labels.values()))

    def lines(self, name: str) -> list[str]:
        """Return the sample."""
        return [f"{name}{self._labels} {self._value()}"]


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        self.requests = Counter(("route", "code"))
        self.errors = Counter(("code",))
        self.seconds = Histogram(_SECONDS)
        self.batch_rows = Histogram(_SIZES)
        self.batch_requests = Histogram(_SIZES)
        self.model_seconds = Histogram(_SECONDS)
        self._all: dict[str, tuple[Counter | Histogram | Gauge, str]] = {
            "requests_total": (self.requests, "Responses, by route and HTTP status."),
            "errors_total": (self.errors, "Predictions that failed."),
            "request_seconds": (
                self.seconds,
                "Time from the headers of a prediction to its response.",
            ),
            "batch_rows": (self.batch_rows, "Rows per batch."),
            "batch_requests": (self.batch_requests, "Requests per batch."),
            "model_seconds": (self.model_seconds, "Time of the model per batch."),
        }

    def show(self, name: str, value: Callable[[], float], text: str, **labels: str) -> None:
        """Add a number that is read when metrics are requested."""
        self._all[name] = (Gauge(value, **labels), text)

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        lines = []
        for name, (metric, text) in self._all.items():
            full = f"fleetx_{name}"
            lines += [f"# HELP {full} {text}", f"# TYPE {full} {metric.kind}", *metric.lines(full)]
        return "\n".join(lines) + "\n"
