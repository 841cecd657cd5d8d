"""LocalSGD for modules: gradients stay local, parameters are averaged periodically."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from fleetx.comm import world
from fleetx.step.stages import LocalGradients, Parameters, ParameterSync
from fleetx.step.train_step import TrainStep


class Average(Protocol):
    """How tensors are averaged over all workers, who call it together."""

    keeps_snapshot: bool

    def remember(self, trained: Parameters) -> None:
        """Take the snapshot of parameters that have none yet, before a first update."""

    def average(
        self, trained: Parameters, others: Sequence[torch.Tensor], *, is_begin: bool
    ) -> None:
        """Make parameters equal on all workers, and others (statistics) their mean."""

    def state_dict(self) -> dict[str, Any]:
        """Return what is kept."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""


class LocalUpdates(LocalGradients):
    """Every worker uses its own gradients; the average sees parameters before they change."""

    def __init__(self, average: Average) -> None:
        self._average = average

    def exchange(self, parameters: Parameters) -> None:
        """Leave the gradients, and let an average that needs one take its first snapshot."""
        if self._average.keeps_snapshot:
            self._average.remember(trained_of(parameters))


class PeriodicAverage(ParameterSync):
    """Averages every `k_steps` updates, and after each one up to `begin_step`."""

    trains_alone = True

    def __init__(
        self,
        step: TrainStep,
        average: Average,
        *,
        k_steps: int,
        begin_step: int,
        average_momentum: bool,
        save_wait: float,
    ) -> None:
        self._step = step
        self.save_wait = save_wait
        self._average = average
        self._begin_step = begin_step
        self._average_momentum = average_momentum
        self.k_steps = k_steps
        self.count = 0
        """Updates so far."""
        self.last_step = 0
        """The update after which parameters were last averaged."""

    def after_update(self, parameters: Parameters, loss: torch.Tensor | None) -> None:
        """Count the update; average, if it is time."""
        self.count += 1
        is_begin = self.count <= self._begin_step
        if is_begin or self.count - self.last_step >= self.k_steps:
            self._average_now(parameters, is_begin=is_begin)

    @property
    def behind(self) -> int:  # type: ignore[override]
        """Updates since the last average."""
        return self.count - self.last_step

    def synchronize(self, parameters: Parameters) -> None:
        """Average now, without an outer step: parameters become their mean over the workers."""
        if any(world.all_gather(torch.tensor(self.behind))):
            self._average_now(parameters, is_begin=True)

    def _average_now(self, parameters: Parameters, *, is_begin: bool) -> None:
        trained = trained_of(parameters)
        others = statistics_of(parameters)
        if self._average_momentum:
            others += momenta_of(self._step.update, trained)
        self._average.average(trained, others, is_begin=is_begin)
        self.last_step = self.count

    def state_dict(self) -> dict[str, Any]:
        """Return the counters and what the average keeps."""
        return {
            "count": self.count,
            "last_step": self.last_step,
            "average": self._average.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        self.count, self.last_step = state["count"], state["last_step"]
        self._average.load_state_dict(state["average"])


def trained_of(parameters: Parameters) -> dict[str, torch.Tensor]:
    """Return what is trained, without statistics."""
    return {name: t for name, t in parameters.items() if t.requires_grad}


def statistics_of(parameters: Parameters) -> list[torch.Tensor]:
    """Return what is no parameter; a frozen parameter is equal everywhere."""
    return [
        t for t in parameters.values() if not (t.requires_grad or isinstance(t, torch.nn.Parameter))
    ]


def momenta_of(optimizer: torch.optim.Optimizer, trained: Parameters) -> list[torch.Tensor]:
    """Return the optimizer's floating state in the shapes of parameters, in the same order
    everywhere; a parameter without state stands for zeros."""
    states: list[Mapping[str, Any]] = [optimizer.state.get(p, {}) for p in trained.values()]
    rows = list(zip(trained.values(), states, strict=True))
    keys = sorted({k for p, state in rows for k, v in state.items() if _is_like(v, p)})
    return [
        state[key] if _is_like(state.get(key), p) else torch.zeros_like(p, requires_grad=False)
        for p, state in rows
        for key in keys
    ]


def _is_like(value: Any, parameter: torch.Tensor) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.shape == parameter.shape
    )
