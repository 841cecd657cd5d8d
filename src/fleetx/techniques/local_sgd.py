"""localsgd: workers train independently and average their parameters periodically.

The step counter begins at 1. Up to `begin_step` parameters are averaged at every step, afterwards
every `k_steps` steps (post-local SGD). Statistics of batch normalisation are averaged too; the
optimizer's state is each worker's own unless `average_momentum` is on. Any optimizer will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from fleetx.kernels.rounded_blocks import message_bytes
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import setting
from fleetx.step.stages import LocalGradients, ParameterSync, Stage
from fleetx.step.technique import Order, Row, Sizes, Technique, ring_bytes
from fleetx.step.train_step import TrainStep
from fleetx.techniques.fragmented_average import FragmentedAverage, Streaming, check
from fleetx.techniques.local_sgd_program import LocalSgdProgram
from fleetx.techniques.parameter_average import WHOLE, AverageConfig, OuterStep, ParameterAverage
from fleetx.techniques.periodic_average import LocalUpdates, PeriodicAverage
from fleetx.techniques.rounded_sum import SMALL
from fleetx.techniques.streaming_average import StreamingAverage

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


class LocalTraining(Technique[A]):
    """Base of techniques whose workers train alone between two averages of parameters."""

    order = Order.EXCHANGE
    replaces = frozenset({Stage.GRAD_SYNC, Stage.PARAM_SYNC})
    needs_workers = True
    differs_by_worker = True
    between_copies = True
    adapts = False
    """The interval changes during training."""

    @property
    def k_steps(self) -> int:
        """The interval, at first."""
        raise NotImplementedError

    def change_step(self, step: TrainStep) -> None:
        """Leave gradients alone and average parameters after the update."""
        outer = OuterStep.from_config(self.config)
        settings: dict[str, Any] = {
            "k_steps": self.k_steps,
            "begin_step": self.config.begin_step,
            "average_momentum": self.config.average_momentum,
            "save_wait": self.config.save_wait,
        }
        streaming = self.streaming
        average: ParameterAverage | FragmentedAverage
        if streaming is None:
            average = ParameterAverage(self.job.exchange(), outer)
            step.param_sync = self.waiting_sync(step, average, **settings)
        else:
            average = FragmentedAverage(self.job.exchange(), outer, streaming)
            settings["overlap_steps"] = streaming.overlap_steps
            step.param_sync = self.streaming_sync(step, average, **settings)
        step.grad_sync = LocalUpdates(average)

    @property
    def streaming(self) -> Streaming | None:
        """The settings of overlapping averages; None if training waits for them."""
        return Streaming.from_config(self.config)

    def check(self) -> None:
        """Reject settings that have no effect."""
        check(self.name, self.config, self.k_steps, adapts=self.adapts)
        if self.streaming is not None and not self.job.layout.is_plain:
            raise ValueError(
                f"overlap_steps, fragments, blend or exchange_bits of {self.name}_configs is set, "
                "but a model that is divided between workers does not support it: leave it out, "
                "or switch off the technique that divides the model."
            )
        if self.config.exchange_bits != WHOLE and self.job.strategy.fp16_allreduce:
            raise ValueError(
                f'{self.name}_configs["exchange_bits"] is {self.config.exchange_bits}, but '
                "fp16_allreduce sends differences in half precision: switch one of them off."
            )

    def elastic_obstacle(self) -> str:
        """Return why it cannot be used in an elastic job: workers are never equal."""
        if self.streaming is None:
            return ""
        return (
            "overlap_steps, fragments, blend or exchange_bits keeps workers from ever having equal "
            "parameters, with which a step of an elastic job ends: leave these settings out"
        )

    def waiting_sync(
        self, step: TrainStep, average: ParameterAverage, **settings: Any
    ) -> ParameterSync:
        """Return the stage that averages while all workers wait."""
        return PeriodicAverage(step, average, **settings)

    def streaming_sync(
        self, step: TrainStep, average: FragmentedAverage, **settings: Any
    ) -> ParameterSync:
        """Return the stage that averages while training goes on."""
        return StreamingAverage(step, average, **settings)

    def change_program(self, step: ProgramStep) -> None:
        """Leave gradients alone and append the average after the update."""
        if self.streaming is not None:
            raise ValueError(
                f"overlap_steps, fragments, blend or exchange_bits of {self.name}_configs is set, "
                "but a program waits for its averages: leave them out, or train a torch module."
            )
        step.grad_sync = LocalGradients()
        step.param_sync = self.make_program()

    def make_program(self) -> LocalSgdProgram:
        """Return what writes the average into a program."""
        return LocalSgdProgram(self.job, self.config, self.k_steps)

    def cycle(self) -> int:
        """Return the interval, at first."""
        return self.k_steps

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the costs of an average, spread over the steps between two."""
        values = sum(sizes.elements) + sizes.buffer_elements
        half = self.job.all_reduce.dtype is not None
        outer = OuterStep.from_config(self.config)
        size = values * sizes.element_bytes
        copies = 1 + (half or not outer.is_plain) + (not outer.is_plain)
        sent = ring_bytes(size, self.job.copies)
        streaming = self.streaming
        if streaming is not None:
            rounds = streaming.blend.bits != WHOLE
            keeps = streaming.blend.keep_local_steps and streaming.overlap_steps > 0
            copies = 2 + (not outer.is_plain) + rounds + keeps
            if rounds:
                entries = sum(sizes.elements)
                messages = float(self.job.workers - 1)
                if streaming.blend.by_shares:
                    messages *= 2 / self.job.workers
                    copies += 1
                sent = messages * message_bytes(entries, streaming.blend.bits)
                whole = sizes.buffer_elements * sizes.element_bytes
                rides = whole <= SMALL
                sent += (
                    (self.job.workers - 1) * whole if rides else ring_bytes(whole, self.job.workers)
                )
        text = f"every {self.k_steps} steps, every step up to {self.config.begin_step}"
        if not outer.is_plain:
            text += f", outer momentum {outer.momentum:g}, outer rate {outer.rate:g}"
        if streaming is not None:
            text += streaming.text()
        return [
            Row(
                stage=Stage.PARAM_SYNC,
                technique=self.name,
                settings=text,
                bytes_sent=sent / self.k_steps,
                memory=copies * size,
            )
        ]


@register
class LocalSgd(LocalTraining[Config]):
    """Workers train independently and average their parameters every k steps."""

    name = "localsgd"
    since, numbers = "2.0", (4, 103)

    @classmethod
    def is_on(cls, strategy: Any) -> bool:
        """Return whether a strategy enables it; together with `auto` it enables the adaptive one
        (2.0-beta's spelling).
        """
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
