"""Analysis of the measurements of all workers: curves, shares of time, and the straggler.

Workers that wait for each other in every step all have the same step time. The straggler is found
by its busy time: the step time without the time spent waiting for others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fleetx.monitor.record import StepRecord
from fleetx.monitor.run_folder import WorkerSteps

POINTS = 160
_SLOWER = 1.1  # minimum ratio of a straggler's busy time to the others'

Curve = list[tuple[float, float]]


@dataclass(frozen=True)
class WorkerSummary:
    """The figures of one worker; times are seconds per step, medians."""

    rank: int
    host: str
    steps: int
    samples: int
    seconds: float
    slow_seconds: float
    """The 95th percentile of the step time."""
    busy: float
    data: float
    wait: float
    communication_share: float
    data_share: float

    @property
    def compute(self) -> float:
        """The step time without data and communication."""
        return max(0.0, self.seconds - self.data - self.wait)


def summarise(worker: WorkerSteps) -> WorkerSummary:
    """Return the figures of a worker with at least one step."""
    records = worker.records
    total = max(sum(r.seconds for r in records), 1e-9)
    per_step = sorted(r.seconds / r.steps for r in records)
    return WorkerSummary(
        rank=worker.rank,
        host=worker.host,
        steps=sum(r.steps for r in records),
        samples=sum(r.samples for r in records),
        seconds=statistics.median(per_step),
        slow_seconds=per_step[min(len(per_step) - 1, int(0.95 * len(per_step)))],
        busy=_median(records, lambda r: r.busy),
        data=_median(records, lambda r: r.data),
        wait=_median(records, lambda r: r.wait),
        communication_share=sum(r.wait for r in records) / total,
        data_share=sum(r.data for r in records) / total,
    )


def _median(records: Sequence[StepRecord], value: Callable[[StepRecord], float]) -> float:
    return statistics.median(value(r) / r.steps for r in records)


def milliseconds(seconds: float) -> str:
    """Format a short time for display."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"


def straggler(workers: Sequence[WorkerSummary]) -> tuple[int | None, str]:
    """Return the rank of the straggler, if there is one, and a sentence about it."""
    if not workers:
        return None, "No worker completed a step."
    if len(workers) == 1:
        return None, "There is only one worker."
    slowest = max(workers, key=lambda w: w.busy)
    others = [w for w in workers if w is not slowest]
    usual = statistics.median(w.busy for w in others)
    difference = slowest.busy - usual
    whom = f"worker {others[0].rank}" if len(others) == 1 else "the others"
    if slowest.busy < usual * _SLOWER or difference < 0.01 * slowest.seconds:
        return None, (
            f"No worker is a straggler: the busiest, worker {slowest.rank}, is busy for "
            f"{milliseconds(slowest.busy)} per step, {whom} for {milliseconds(usual)}."
        )
    in_data = slowest.data - statistics.median(w.data for w in others)
    where = f" on {slowest.host}" if len({w.host for w in workers}) > 1 else ""
    reason = (
        "Most of the difference is waiting for data."
        if in_data > difference / 2
        else f"It computes longer{where}: it has more work, or shares its device or cores."
    )
    return slowest.rank, (
        f"Worker {slowest.rank} is the straggler: it is busy for "
        f"{milliseconds(slowest.busy)} per step, {whom} for {milliseconds(usual)}. {reason}"
    )


class Bins:
    """The steps of a run, in at most `points` intervals common to all workers."""

    def __init__(self, workers: Iterable[WorkerSteps], points: int = POINTS) -> None:
        self.workers = [worker for worker in workers if worker.records]
        last = max((worker.records[-1].step for worker in self.workers), default=0)
        self.width = max(1, math.ceil(last / points))
        self._bins = {worker.rank: self._divide(worker.records) for worker in self.workers}
        self.numbers = sorted({n for bins in self._bins.values() for n in bins})

    def _divide(self, records: Sequence[StepRecord]) -> dict[int, list[StepRecord]]:
        bins: dict[int, list[StepRecord]] = {}
        for record in records:
            bins.setdefault((record.step - 1) // self.width, []).append(record)
        return bins

    def _curve(self, value: Callable[[list[list[StepRecord]]], float | None]) -> Curve:
        """Return a value of all workers' bins for each interval, keyed by its last step."""
        curve = []
        for number in self.numbers:
            members = [bins[number] for bins in self._bins.values() if number in bins]
            found = value(members)
            if found is not None:
                step = max(record.step for records in members for record in records)
                curve.append((float(step), found))
        return curve

    def loss(self) -> Curve:
        """Return the mean loss over workers and steps."""

        def mean(members: list[list[StepRecord]]) -> float | None:
            known = [r.loss for records in members for r in records if r.loss is not None]
            return statistics.fmean(known) if known else None

        return self._curve(mean)

    def throughput(self) -> Curve:
        """Return the samples per second of all workers combined."""

        def rate(members: list[list[StepRecord]]) -> float | None:
            rates = [
                sum(r.samples for r in records) / max(sum(r.seconds for r in records), 1e-9)
                for records in members
            ]
            return sum(rates) or None

        return self._curve(rate)

    def communication(self) -> Curve:
        """Return the percentage of time that workers wait for others."""

        def share(members: list[list[StepRecord]]) -> float:
            every = [r for records in members for r in records]
            return 100 * sum(r.wait for r in every) / max(sum(r.seconds for r in every), 1e-9)

        return self._curve(share)

    def busy(self, rank: int) -> Curve:
        """Return the busy time per step of a worker in milliseconds."""
        return self._per_step(rank, lambda record: record.busy)

    def seconds(self, rank: int) -> Curve:
        """Return the step time of a worker in milliseconds."""
        return self._per_step(rank, lambda record: record.seconds)

    def _per_step(self, rank: int, value: Callable[[StepRecord], float]) -> Curve:
        return [
            (
                float(records[-1].step),
                1000 * sum(map(value, records)) / sum(r.steps for r in records),
            )
            for _, records in sorted(self._bins[rank].items())
        ]
