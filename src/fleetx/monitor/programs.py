"""Measurement of training programs: one run of the executor is one step.

The executor's prepared run is wrapped in an object that measures it. The loss is fetched along
with the script's fetch list, so that it is known even if the script does not fetch it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from fleetx.monitor.batch_samples import samples_in
from fleetx.monitor.recorder import Recorder, now
from fleetx.static.graph.program import Program

Prepare = Callable[[list[str]], Any]


class MeasuredRun:
    """A prepared program whose runs are recorded as steps."""

    def __init__(self, prepared: Any, recorder: Recorder, loss: int | None, *, hides: bool) -> None:
        self._prepared = prepared
        self._recorder = recorder
        self._loss = loss
        self._hides = hides  # the last fetched value is ours, not the script's

    def run(self, feed: Mapping[str, Any], return_numpy: bool) -> Any:
        """Run the program and record a step."""
        recorder = self._recorder
        recorder.forward_began(samples_in(feed))
        began = now()
        values = self._prepared.run(feed, return_numpy)
        recorder.stage("run", began, now())
        if self._loss is not None and values[self._loss] is not None:
            recorder.note_loss(_number(values[self._loss]))
        recorder.step_ended()
        return values[:-1] if self._hides else values


def _number(value: Any) -> Any:
    """Return a fetched value in a form that `float` accepts."""
    if hasattr(value, "numpy") and callable(value.numpy):
        value = value.numpy()
    return value.reshape(-1)[0] if getattr(value, "ndim", 0) else value


class ProgramTarget:
    """A program that trains, and the name of its loss."""

    def __init__(self, program: Program, loss: str) -> None:
        self._program = weakref.ref(program)
        self._loss = loss

    def attach(self, recorder: Recorder) -> list[Callable[[], None]]:
        """Attach the hooks of a recorder; return the functions that remove them."""
        program = self._program()
        if program is None:
            return []

        def measured(prepare: Prepare, fetches: list[str]) -> MeasuredRun:
            if self._loss in fetches:
                loss = fetches.index(self._loss)
                return MeasuredRun(prepare(fetches), recorder, loss, hides=False)
            holder = self._program()
            if holder is None or not holder.global_block().has_var(self._loss):
                return MeasuredRun(prepare(fetches), recorder, None, hides=False)
            prepared = prepare([*fetches, self._loss])
            return MeasuredRun(prepared, recorder, len(fetches), hides=True)

        program.binding.measured = measured
        program.bump_version()  # invalidates earlier preparations

        def end() -> None:
            left = self._program()
            if left is not None:
                left.binding.measured = None
                left.bump_version()

        return [end]
