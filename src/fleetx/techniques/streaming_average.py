"""LocalSGD with averages that overlap with training: in fragments, applied some updates later.

    start    part i of the model, at its turn in the interval: differences leave in the background
    finish   `overlap_steps` updates later: the snapshot follows their mean (by an outer step), and
             the parameters follow the snapshot, as far as `blend` says

This is Streaming DiLoCo (https://arxiv.org/abs/2501.18512), and delayed averaging where parameters
keep the updates of the meantime.
"""

from __future__ import annotations

from typing import Any

import torch

from fleetx.step.stages import Parameters
from fleetx.step.train_step import TrainStep
from fleetx.techniques.fragmented_average import FragmentedAverage
from fleetx.techniques.periodic_average import (
    PeriodicAverage,
    momenta_of,
    statistics_of,
    trained_of,
)


class StreamingAverage(PeriodicAverage):
    """Starts the average of each part once in `k_steps` updates, and applies it later."""

    def __init__(
        self, step: TrainStep, average: FragmentedAverage, *, overlap_steps: int, **settings: Any
    ) -> None:
        super().__init__(step, average, **settings)
        self._fragments = average
        self._overlap_steps = overlap_steps
        self._due = [0] * len(average)  # the update after which a part's average is applied
        self._last_equal = 0
        self._last_met = 0

    def after_update(self, parameters: Parameters, loss: torch.Tensor | None) -> None:
        """Count the update; apply averages that are due, and start those whose turn it is."""
        self.count += 1
        if self.count <= self._begin_step:
            self._average_now(parameters, is_begin=True)
            return
        for number, due in enumerate(self._due):
            if due == self.count:
                self._finish(number, parameters)
        position = self.count - self.last_step
        for number in range(len(self._fragments)):
            if position == self._turn(number):
                self._start(number, parameters)
        if position >= self.k_steps:
            self.last_step = self.count

    def _turn(self, number: int) -> int:
        """Return in which update of an interval a part leaves; the last one does at its end."""
        parts = len(self._fragments)
        return -(-self.k_steps * (number + 1) // parts)

    def _start(self, number: int, parameters: Parameters) -> None:
        if self._fragments.is_under_way(number):  # the interval has become shorter than the delay
            self._finish(number, parameters)
        self._fragments.start(number, *self._part(number, parameters))
        self._due[number] = self.count + self._overlap_steps
        if not self._overlap_steps:
            self._finish(number, parameters)

    def _finish(self, number: int, parameters: Parameters) -> None:
        self._fragments.finish(number, *self._part(number, parameters))
        self._due[number] = 0
        if number == len(self._fragments) - 1:
            self._last_met = self.count

    def _part(
        self, number: int, parameters: Parameters
    ) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
        """Return the parameters of a part, and what is averaged with them: their momenta, and with
        the last part the statistics."""
        own = self._fragments.divide(trained_of(parameters))[number]
        others = statistics_of(parameters) if number == len(self._fragments) - 1 else []
        if self._average_momentum:
            others += momenta_of(self._step.update, own)
        return own, others

    @property
    def behind(self) -> int:  # type: ignore[override]
        """Updates since parameters were equal on all workers."""
        return self.count - self._last_equal

    @property
    def has_met(self) -> bool:
        """Whether the workers have waited for each other after this update."""
        return self._last_met == self.count

    def _average_now(self, parameters: Parameters, *, is_begin: bool) -> None:
        for number, due in enumerate(self._due):
            if due:
                self._finish(number, parameters)
        super()._average_now(parameters, is_begin=is_begin)
        self._last_equal = self._last_met = self.count

    def state_dict(self) -> dict[str, Any]:
        """Return what LocalSGD keeps, and when averages under way are applied."""
        return {
            **super().state_dict(),
            "due": list(self._due),
            "last_equal": self._last_equal,
            "last_met": self._last_met,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        super().load_state_dict(state)
        self._due = list(state["due"])
        self._last_equal, self._last_met = state["last_equal"], state["last_met"]
