"""Measurement of this worker's steps, assembled from the events that hooks report.

    data -> forward -> backward -> (wait for others) -> exchange -> update -> parameters

A step lasts from the end of the previous one to its own end. Hooks call the methods here with times
of `perf_counter`; a completed step goes to the takers (file, progress line, event files). If
monitoring is off, none of this is on the path of a step.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fleetx.monitor.record import StepRecord

if TYPE_CHECKING:
    from fleetx.monitor.timeline import Timeline

logger = logging.getLogger("fleetx.monitor")
now = time.perf_counter


class Taker(Protocol):
    """A consumer of steps."""

    def take(self, record: StepRecord) -> None:
        """Consume one step."""

    def close(self) -> None:
        """Finish: no more steps follow."""


class Recorder:
    """Recorder that turns the events of hooks into steps."""

    def __init__(self, takers: Sequence[Taker], spans: Timeline | None = None) -> None:
        self._takers = list(takers)
        self._spans = spans
        self.epoch = 0
        self.steps = 0
        self.has_watched_data = False
        """Whether data waits are reported; otherwise the gap before a forward pass counts as
        one."""
        self._began: float | None = None  # end of the last step, if training continued
        self._forward_began: float | None = None
        self._marked: float | None = None  # start of the current stage
        self._data = self._wait = 0.0
        self._samples = 0
        self._loss: Any = None
        self._has_warned = False

    def add(self, taker: Taker) -> None:
        """Add a consumer of the following steps."""
        self._takers.append(taker)

    # -- events from hooks ------------------------------------------------------------
    def data_was_waited_for(self, began: float, ended: float) -> None:
        """Record that the loop waited for a batch."""
        if self._began is None:
            self._began, self._wait = began, 0.0
        self._data += ended - began
        self._mark("waiting for data", "data", began, ended)

    def paused(self) -> None:
        """Record a pause: work other than training, which belongs to no step."""
        if self._forward_began is None:
            self._began = None
            self._data = self._wait = 0.0

    def forward_ended(self, loss: Any = None) -> None:
        """Record the end of the forward pass, with `loss` if the model returned one."""
        ended = now()
        if loss is not None:
            self.note_loss(loss)
        if self._marked is not None:
            self._mark("forward", "compute", self._marked, ended)
        self._marked = ended

    def backward_waited(self, began: float, ended: float) -> None:
        """Record that backward finished at `began` and all gradients were reduced at `ended`."""
        if self._marked is not None:
            self._mark("backward", "compute", self._marked, began)
        if ended > began:
            self.waited("gradient all-reduce", began, ended)
        self._marked = ended

    def waited(self, name: str, began: float, ended: float) -> None:
        """Record a wait for other workers."""
        self._wait += ended - began
        self._mark(name, "communication", began, ended)

    def stage(self, name: str, began: float, ended: float) -> None:
        """Record a stage after backward; waits inside it are recorded separately."""
        self._mark(name, "compute", began, ended)

    def note_loss(self, loss: Any) -> None:
        """Record the loss of the current step; read it now unless it is on another device."""
        is_elsewhere = getattr(getattr(loss, "device", None), "type", "cpu") != "cpu"
        if is_elsewhere:
            self._loss = loss.detach()
        else:
            self._loss = loss.item() if hasattr(loss, "item") else float(loss)

    def note_backward(self, loss: Any) -> None:
        """Record a loss on which backward was called, unless the step's loss is known already."""
        if self._loss is None:
            self.note_loss(loss)

    def forward_began(self, samples: int) -> None:
        """Record the start of a forward pass in training, or of a run of a training program."""
        began = now()
        if self._began is None:  # earlier waits belong to the preparation
            self._began, self._wait = began, 0.0
        if self._forward_began is None:  # the first one of the step
            self._forward_began = began
            gap = began - self._began - self._wait
            if not self.has_watched_data and gap > 0:
                self._data = gap
                self._mark("waiting for data", "data", self._began, began)
        self._marked = began
        self._samples += samples

    def _mark(self, name: str, kind: str, began: float, ended: float) -> None:
        if self._spans is not None:
            self._spans.span(name, kind, began, ended)

    def step_ended(self) -> None:
        """Complete the current step."""
        ended = now()
        began = ended if self._began is None else self._began
        self.steps += 1
        loss = self._loss
        record = StepRecord(
            self.steps,
            self.epoch,
            time.time(),
            ended - began,
            self._data,
            self._wait,
            self._samples,
            loss,
        )
        if self._spans is not None:
            self._spans.span(f"step {self.steps}", "step", began, ended)
            self._spans.step_ended()
        self._began, self._forward_began, self._marked = ended, None, None
        self._data = self._wait = 0.0
        self._samples, self._loss = 0, None
        if isinstance(loss, float) and not math.isfinite(loss) and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the loss is %s in step %d: strategy.stop_on_nan = True stops there and names the "
                "worker and the parameter.",
                loss,
                self.steps,
            )
        for taker in self._takers:
            taker.take(record)

    def close(self) -> None:
        """Close all consumers."""
        for taker in self._takers:
            taker.close()
