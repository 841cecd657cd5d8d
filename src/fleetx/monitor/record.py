"""One worker's measurements of a step, and their text form.

Times are in seconds. `busy` is the step time without the time spent waiting for other workers:
workers that wait for each other all have the same step time, and only `busy` shows which is slow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class StepRecord:
    """A step, or several consecutive steps merged."""

    step: int
    """The number of the (last) step, starting at 1."""
    epoch: int
    """The epoch, starting at 1; 0 if unknown."""
    time: float
    """The end of the step, in seconds since 1970."""
    seconds: float
    """The total duration."""
    data: float
    """The part of it spent waiting for data."""
    wait: float
    """The part of it spent waiting for other workers or for servers."""
    samples: int
    loss: float | None
    """The loss, or the mean of merged steps; None if unknown."""
    steps: int = 1
    """The number of steps that this record represents."""

    @property
    def busy(self) -> float:
        """The seconds in which the worker did not wait for others."""
        return max(0.0, self.seconds - self.wait)

    def read_loss(self) -> float | None:
        """Return the loss; if it is on a device, synchronize and copy it."""
        if self.loss is not None:
            self.loss = float(self.loss)
        return self.loss

    def line(self) -> str:
        """Return the record as a line of JSON."""
        # Formatted by hand: this runs in every step, and json.dumps takes three times as long.
        more = f', "steps": {self.steps}' if self.steps > 1 else ""
        return (
            f'{{"step": {self.step}, "epoch": {self.epoch}, "time": {self.time:.6f}, '
            f'"seconds": {self.seconds:.6f}, "data": {self.data:.6f}, "wait": {self.wait:.6f}, '
            f'"samples": {self.samples}, "loss": {_json_number(self.read_loss())}{more}}}\n'
        )


def _json_number(value: float | None) -> str:
    """Format a number as JSON; infinities and NaN, which JSON lacks, become strings."""
    if value is None:
        return "null"
    return repr(value) if math.isfinite(value) else f'"{value}"'


def record_from(fields: Any) -> StepRecord:
    """Return the record for the fields of a line; raise ValueError if they are invalid."""
    try:
        loss = fields["loss"]
        return StepRecord(
            step=int(fields["step"]),
            epoch=int(fields["epoch"]),
            time=float(fields["time"]),
            seconds=float(fields["seconds"]),
            data=float(fields["data"]),
            wait=float(fields["wait"]),
            samples=int(fields["samples"]),
            loss=None if loss is None else float(loss),
            steps=int(fields.get("steps", 1)),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is not the record of a step ({error})") from error


def merged(first: StepRecord, second: StepRecord) -> StepRecord:
    """Merge two consecutive records into one."""
    count = first.steps + second.steps
    loss = second.loss
    if first.loss is not None and second.loss is not None:
        loss = (first.loss * first.steps + second.loss * second.steps) / count
    return StepRecord(
        step=second.step,
        epoch=second.epoch,
        time=second.time,
        seconds=first.seconds + second.seconds,
        data=first.data + second.data,
        wait=first.wait + second.wait,
        samples=first.samples + second.samples,
        loss=loss,
        steps=count,
    )
