"""localsgd: workers train independently and average their parameters periodically.

The step counter begins at 1. Up to `begin_step` parameters are averaged at every step, afterwards
every `k_steps` steps (post-local SGD). Statistics of batch normalisation are averaged too; the
optimizer's state is each worker's own unless `average_momentum` is on. Any optimizer will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from fleetx.comm import world
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import setting
from fleetx.step.stages import LocalGradients, Parameters, ParameterSync, Stage
from fleetx.step.technique import Order, Row, Sizes, Technique, ring_bytes
from fleetx.step.train_step import TrainStep
from fleetx.techniques.local_sgd_program import LocalSgdProgram
from fleetx.techniques.parameter_average import AverageConfig, OuterStep, ParameterAverage

A = TypeVar("A", bound=AverageConfig)
_INTERVALS = (4, 8, 16)
"""Local steps that `auto` tries: with Paddle's default of 1 nothing is saved."""


@dataclass(frozen=True, kw_only=True)
class Config(AverageConfig):
    """How often parameters are averaged, and how."""

    k_steps: int = setting(1, number=1, since="2.0", least=1)
    """Local steps between two averages."""
    every_run: bool = setting(False, number=1005)
    """Average in every run of fleet.main_program: the script itself counts (1.x)."""


class LocalUpdates(LocalGradients):
    """Every worker uses its own gradients; the average sees parameters before they change."""

    def __init__(self, average: ParameterAverage) -> None:
        self._average = average

    def exchange(self, parameters: Parameters) -> None:
        """Leave the gradients, and let an average that needs one take its first snapshot."""
        if self._average.keeps_snapshot:
            self._average.remember(_trained(parameters))


class PeriodicAverage(ParameterSync):
    """Averages every `k_steps` updates, and after each one up to `begin_step`."""

    trains_alone = True

    def __init__(
        self,
        step: TrainStep,
        average: ParameterAverage,
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
        trained = _trained(parameters)
        # A frozen parameter is equal everywhere; what is no parameter is a statistic.
        others = [
            t
            for t in parameters.values()
            if not (t.requires_grad or isinstance(t, torch.nn.Parameter))
        ]
        if self._average_momentum:
            others += _momenta(self._step.update, trained)
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


def _trained(parameters: Parameters) -> dict[str, torch.Tensor]:
    return {name: t for name, t in parameters.items() if t.requires_grad}


def _momenta(optimizer: torch.optim.Optimizer, trained: Parameters) -> list[torch.Tensor]:
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


class LocalTraining(Technique[A]):
    """Base of techniques whose workers train alone between two averages of parameters."""

    order = Order.EXCHANGE
    replaces = frozenset({Stage.GRAD_SYNC, Stage.PARAM_SYNC})
    needs_workers = True
    differs_by_worker = True

    @property
    def k_steps(self) -> int:
        """The interval, at first."""
        raise NotImplementedError

    def change_step(self, step: TrainStep) -> None:
        """Leave gradients alone and average parameters after the update."""
        average = ParameterAverage(self.job.exchange(), OuterStep.from_config(self.config))
        step.grad_sync = LocalUpdates(average)
        step.param_sync = self.make_sync(step, average)

    def make_sync(self, step: TrainStep, average: ParameterAverage) -> ParameterSync:
        """Return the stage that decides when to average."""
        return PeriodicAverage(
            step,
            average,
            k_steps=self.k_steps,
            begin_step=self.config.begin_step,
            average_momentum=self.config.average_momentum,
            save_wait=self.config.save_wait,
        )

    def change_program(self, step: ProgramStep) -> None:
        """Leave gradients alone and append the average after the update."""
        step.grad_sync = LocalGradients()
        step.param_sync = self.make_program()

    def make_program(self) -> LocalSgdProgram:
        """Return what writes the average into a program."""
        return LocalSgdProgram(self.job, self.config, self.k_steps)

    def cycle(self) -> int:
        """Return the interval, at first."""
        return self.k_steps

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return what an average costs, spread over the steps between two."""
        values = sum(sizes.elements) + sizes.buffer_elements
        half = self.job.all_reduce.dtype is not None
        outer = OuterStep.from_config(self.config)
        size = values * sizes.element_bytes
        copies = 1 + (half or not outer.is_plain) + (not outer.is_plain)
        text = f"every {self.k_steps} steps, every step up to {self.config.begin_step}"
        if not outer.is_plain:
            text += f", outer momentum {outer.momentum:g}, outer rate {outer.rate:g}"
        return [
            Row(
                stage=Stage.PARAM_SYNC,
                technique=self.name,
                settings=text,
                bytes_sent=ring_bytes(size, self.job.workers) / self.k_steps,
                memory=copies * size,
            )
        ]


@register
class LocalSgd(LocalTraining[Config]):
    """Workers train alone and average their parameters now and then."""

    name = "localsgd"
    since, numbers = "2.0", (4, 103)

    @classmethod
    def is_on(cls, strategy: Any) -> bool:
        """Return whether a strategy asks for it; together with `auto` it asks for the adaptive one
        (2.0-beta's spelling)."""
        return bool(strategy.localsgd) and not strategy.auto

    @classmethod
    def trials(cls, strategy: Any, device: str) -> list[tuple[str, dict[str, Any]]]:
        """Return several intervals, unless one is set."""
        if "k_steps" in strategy.localsgd_configs.given:
            return super().trials(strategy, device)
        return [
            (f"localsgd every {k} steps", {"localsgd": True, "localsgd_configs": {"k_steps": k}})
            for k in _INTERVALS
        ]

    @property
    def k_steps(self) -> int:
        """The interval."""
        return self.config.k_steps

    def make_program(self) -> LocalSgdProgram:
        """Return what writes the average into a program."""
        config = self.config
        return LocalSgdProgram(self.job, config, config.k_steps, every_run=config.every_run)
