"""What one worker measured of a step, and the line of text that it becomes.

Times are seconds. `busy` is what is left of a step when the waiting for other workers is taken off:
workers that wait for each other all take equally long, and only this tells who is slow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class StepRecord:
    """A step, or several neighbouring ones that were merged."""

    step: int
    """The number of the (last) step, from 1."""
    epoch: int
    """Of which pass over the data it is, from 1; 0 if nobody said."""
    time: float
    """When it ended, in seconds since 1970."""
    seconds: float
    """How long it took, everything included."""
    data: float
    """How much of that the worker waited for data."""
    wait: float
    """How much of that it waited for other workers or for servers."""
    samples: int
    loss: float | None
    """None: nobody said; of merged steps their mean."""
    steps: int = 1
    """How many steps this stands for."""

    @property
    def busy(self) -> float:
        """Seconds in which the worker did not wait for others."""
        return max(0.0, self.seconds - self.wait)

    def read_loss(self) -> float | None:
        """Return the loss; one that lies on a device is fetched now, which waits for it."""
        if self.loss is not None:
            self.loss = float(self.loss)
        return self.loss

    def line(self) -> str:
        """Return the record as a line of JSON."""
        # Written by hand: this is done in every step, and json.dumps takes three times as long.
        more = f', "steps": {self.steps}' if self.steps > 1 else ""
        return (
            f'{{"step": {self.step}, "epoch": {self.epoch}, "time": {self.time:.6f}, '
            f'"seconds": {self.seconds:.6f}, "data": {self.data:.6f}, "wait": {self.wait:.6f}, '
            f'"samples": {self.samples}, "loss": {_json_number(self.read_loss())}{more}}}\n'
        )


def _json_number(value: float | None) -> str:
    """Return a number in JSON; infinities and NaN, which it has not, are words."""
    if value is None:
        return "null"
    return repr(value) if math.isfinite(value) else f'"{value}"'


def record_from(fields: Any) -> StepRecord:
    """Return the record of a line's fields; ValueError if they are not those of one."""
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
        raise ValueError(f"this is no measurement of a step ({error})") from error


def merged(first: StepRecord, second: StepRecord) -> StepRecord:
    """Return two neighbouring records as one."""
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
