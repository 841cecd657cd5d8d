"""Measuring the steps of this worker: what the hooks of the training tell, put together.

    data -> forward -> backward -> (wait for others) -> exchange -> update -> parameters

A step lasts from the end of the last one to its own end. Hooks call the methods here with times of
`perf_counter`; a finished step goes to the takers (file, progress line, event files). Without a
measured run none of this is in the path of a step.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import Any, Protocol

from fleetx.monitor.record import StepRecord

logger = logging.getLogger("fleetx.monitor")
now = time.perf_counter


class Taker(Protocol):
    """Something that wants to have every step."""

    def take(self, record: StepRecord) -> None:
        """Take one step."""

    def close(self) -> None:
        """Finish: there will be no more."""


class Spans(Protocol):
    """Something that wants to know when what happened."""

    def span(self, name: str, kind: str, began: float, ended: float) -> None:
        """Take one stretch of time; `kind` is 'step', 'compute', 'communication' or 'data'."""

    def step_ended(self) -> None:
        """All stretches of a step have been told."""


class Recorder:
    """Turns what hooks tell into steps."""

    def __init__(self, takers: Sequence[Taker], spans: Spans | None = None) -> None:
        self._takers = list(takers)
        self._spans = spans
        self.epoch = 0
        self.steps = 0
        self.has_watched_data = False
        """Whether somebody tells how long data took; otherwise the gap before a forward pass is
        taken for it."""
        self._began: float | None = None  # the end of the last step, if training goes on from there
        self._forward_began: float | None = None
        self._marked: float | None = None  # where the stage under way began
        self._data = self._wait = 0.0
        self._samples = 0
        self._loss: Any = None
        self._has_warned = False

    def add(self, taker: Taker) -> None:
        """Give the following steps to one more."""
        self._takers.append(taker)

    # -- what hooks tell --------------------------------------------------------------
    def data_was_waited_for(self, began: float, ended: float) -> None:
        """The loop has waited for a batch."""
        if self._began is None:
            self._began, self._wait = began, 0.0
        self._data += ended - began
        self._mark("waiting for data", "data", began, ended)

    def paused(self) -> None:
        """Something else than training goes on: it belongs to no step."""
        if self._forward_began is None:
            self._began = None
            self._data = self._wait = 0.0

    def forward_began(self, samples: int) -> None:
        """A forward pass of the training begins."""
        self._start(now(), samples)

    def forward_ended(self, loss: Any = None) -> None:
        """It has ended; `loss` if the model returned one."""
        ended = now()
        if loss is not None:
            self.note_loss(loss)
        if self._marked is not None:
            self._mark("forward", "compute", self._marked, ended)
        self._marked = ended

    def backward_waited(self, began: float, ended: float) -> None:
        """Backward was done at `began` and had all gradients of the others at `ended`."""
        if self._marked is not None:
            self._mark("backward", "compute", self._marked, began)
        if ended > began:
            self.waited("gradient all-reduce", began, ended)
        self._marked = ended

    def waited(self, name: str, began: float, ended: float) -> None:
        """This worker waited for others."""
        self._wait += ended - began
        self._mark(name, "communication", began, ended)

    def stage(self, name: str, began: float, ended: float) -> None:
        """A stage after backward took this long; waits inside are told on their own."""
        self._mark(name, "compute", began, ended)

    def note_loss(self, loss: Any) -> None:
        """The loss of the step under way; read now, unless it lies on a device that works on."""
        is_elsewhere = getattr(getattr(loss, "device", None), "type", "cpu") != "cpu"
        if is_elsewhere:
            self._loss = loss.detach()
        else:
            self._loss = loss.item() if hasattr(loss, "item") else float(loss)

    def run_began(self, samples: int) -> None:
        """The run of a training program begins."""
        self._start(now(), samples)

    def _start(self, began: float, samples: int) -> None:
        if self._began is None:  # waits so far belong to preparations
            self._began, self._wait = began, 0.0
        if self._forward_began is None:  # the first of the step
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
        """The step is done."""
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
        """Let all takers finish."""
        for taker in self._takers:
            taker.close()
