"""adaptive_localsgd: LocalSGD whose interval follows the loss and the learning rate.

After each average that follows `begin_step` the interval becomes

    ceil(sqrt(lr_0 * loss / (lr * loss_0) * init_k_steps)),  at least 1 and at most 16,

where loss and rate are means over the workers, and loss_0 and lr_0 those of step 1. A loss that is
not a number, or has changed its sign, leaves the interval as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from fleetx.comm import world
from fleetx.kernels.local_sgd import next_interval
from fleetx.step.registry import register
from fleetx.step.settings import read, setting
from fleetx.step.stages import Parameters, ParameterSync
from fleetx.step.train_step import TrainStep
from fleetx.techniques.fragmented_average import FragmentedAverage
from fleetx.techniques.local_sgd import LocalTraining
from fleetx.techniques.local_sgd_program import AdaptiveLocalSgdProgram, LocalSgdProgram
from fleetx.techniques.parameter_average import AverageConfig, ParameterAverage
from fleetx.techniques.periodic_average import PeriodicAverage
from fleetx.techniques.streaming_average import StreamingAverage

MOST_STEPS = 16
"""The largest interval."""


@dataclass(frozen=True, kw_only=True)
class Config(AverageConfig):
    """The first interval, and how parameters are averaged."""

    init_k_steps: int = setting(1, number=1, since="2.0", least=1)
    """Local steps between averages at first."""


class AdaptiveAverage(PeriodicAverage):
    """Averages at an interval that is recomputed after each average."""

    needs_loss = True

    def __init__(self, step: TrainStep, average: Any, **settings: Any) -> None:
        super().__init__(step, average, **settings)
        self._init_k_steps = self.k_steps
        self._first: tuple[float, float] | None = None  # loss and rate of step 1

    def after_update(self, parameters: Parameters, loss: torch.Tensor | None) -> None:
        """Count the update; average and choose the next interval, if it is time."""
        super().after_update(parameters, loss)
        assert loss is not None  # the step has made sure
        if self._first is None:
            self._first = self._means(loss)
        if self.last_step == self.count > self._begin_step:
            now = self._first if self.count == 1 else self._means(loss)
            self.k_steps = next_interval(
                self._init_k_steps, self._first, now, self.k_steps, MOST_STEPS
            )

    def _means(self, loss: torch.Tensor) -> tuple[float, float]:
        """Return loss and rate as means over workers, so that all choose the same interval."""
        rate = float(self._step.update.param_groups[0]["lr"])
        values = [float(loss.detach().double().mean()), rate]
        # In single precision, as in programs: the interval may depend on the last bit.
        total = world.all_reduce(torch.tensor(values, dtype=torch.float32, device=loss.device))
        mean_loss, mean_rate = (total * (1.0 / world.world_size())).tolist()
        return mean_loss, mean_rate

    def state_dict(self) -> dict[str, Any]:
        """Return the state of LocalSGD, and the interval with its inputs."""
        first = None if self._first is None else list(self._first)
        return {**super().state_dict(), "k_steps": self.k_steps, "first": first}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        super().load_state_dict(state)
        self.k_steps = state["k_steps"]
        self._first = None if state["first"] is None else (state["first"][0], state["first"][1])


class AdaptiveStreamingAverage(AdaptiveAverage, StreamingAverage):
    """Averages in the background, at an interval that is recomputed when it ends."""


@register
class AdaptiveLocalSgd(LocalTraining[Config]):
    """LocalSGD whose interval follows the loss."""

    name = "adaptive_localsgd"
    since, numbers = "2.0", (24, 110)
    adapts = True

    @classmethod
    def is_on(cls, strategy: Any) -> bool:
        """Return whether a strategy enables it, by its own switch or by `localsgd` with `auto`."""
        return bool(strategy.adaptive_localsgd or (strategy.localsgd and strategy.auto))

    @cached_property
    def config(self) -> Config:
        """Its own settings, or those of localsgd if that switch enables it."""
        strategy = self.job.strategy
        if strategy.adaptive_localsgd:
            return read(Config, strategy.adaptive_localsgd_configs)
        given = strategy.localsgd_configs
        return read(Config, {**given, "init_k_steps": given["k_steps"]})

    @property
    def k_steps(self) -> int:
        """The interval, at first."""
        return self.config.init_k_steps

    def waiting_sync(
        self, step: TrainStep, average: ParameterAverage, **settings: Any
    ) -> ParameterSync:
        """Return the stage that averages while all workers wait."""
        return AdaptiveAverage(step, average, **settings)

    def streaming_sync(
        self, step: TrainStep, average: FragmentedAverage, **settings: Any
    ) -> ParameterSync:
        """Return the stage that averages while training continues."""
        return AdaptiveStreamingAverage(step, average, **settings)

    def make_program(self) -> LocalSgdProgram:
        """Return what writes average and interval into a program."""
        return AdaptiveLocalSgdProgram(self.job, self.config, self.k_steps, MOST_STEPS)
