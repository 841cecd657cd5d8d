"""What a technique is: a switch of the strategy that changes stages of the step.

A technique declares the stages it replaces and those it wraps, refuses jobs in which it cannot act,
and knows how to change a step of either front end. One file in `fleetx.techniques` per technique.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch.optim import Optimizer

from fleetx.comm.gradient_all_reduce import AllReduceSettings, GradientAllReduce, GradientExchange
from fleetx.step.program_step import ProgramStep
from fleetx.step.stages import Stage
from fleetx.step.train_step import TrainStep


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a technique may know about the job it is switched on in."""

    strategy: Any
    """The DistributedStrategy."""
    workers: int = 1
    all_reduce: AllReduceSettings = AllReduceSettings()
    bucket_mb: float = 32.0
    last_bucket_mb: float = 1.0
    bucket_count: int = 0
    """Gradients in a bucket of a program at most; 0 for no limit."""

    def exchange(self) -> GradientExchange:
        """Return how gradients are summed over workers; all workers must call it together."""
        return GradientExchange(
            GradientAllReduce(self.all_reduce),
            limit_mb=self.bucket_mb,
            last_mb=self.last_bucket_mb,
            limit_count=self.bucket_count,
        )


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes that costs depend on."""

    elements: tuple[int, ...]
    """Elements of each trained parameter."""
    element_bytes: int = 4
    buffer_elements: int = 0
    """Floating statistics that are not trained."""
    device: str = "cpu"
    """The kind of device that the parameters are on."""

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all trained parameters, and of all their gradients."""
        return sum(self.elements) * self.element_bytes


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of `fleet.explain()`."""

    stage: Stage
    technique: str
    settings: str = ""
    bytes_sent: float = 0.0
    """By one worker in an average step, before other techniques' `share_of_bytes`."""
    memory: float | None = 0.0
    """Bytes added (negative: saved) on one worker; None if it depends on the activations."""
    short: str = ""
    """What stands for it in the line that announces the step; the technique's name if empty."""


class Technique:
    """Base of all techniques."""

    name: ClassVar[str]
    """The switch on the strategy; its settings are `<name>_configs`."""
    replaces: ClassVar[frozenset[Stage]] = frozenset()
    wraps: ClassVar[frozenset[Stage]] = frozenset()
    refuses: ClassVar[Mapping[str, str]] = {}
    """Other techniques it cannot be combined with although no stage is claimed twice, with the
    reason as a clause."""
    needs_workers: ClassVar[bool] = False
    """Changes only what is between workers: with a single one there is nothing to do."""
    differs_by_worker: ClassVar[bool] = False
    """Workers have state of their own, which a checkpoint must hold for each."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @property
    def settings(self) -> Mapping[str, Any]:
        """The technique's settings on the strategy."""
        found: Mapping[str, Any] = getattr(self.job.strategy, f"{self.name}_configs", {})
        return found

    @classmethod
    def is_on(cls, strategy: Any) -> bool:
        """Tell whether a strategy asks for this technique."""
        return bool(getattr(strategy, cls.name, False))

    def check(self) -> None:
        """Raise ValueError, with a sentence that says what to do, if it cannot act in this job."""

    def check_optimizer(self, optimizer: Any) -> None:
        """Raise ValueError if it cannot act on this optimizer, of torch or of programs."""

    def change_step(self, step: TrainStep) -> None:
        """Put this technique's stages into the step of a PyTorch module, all but the update."""

    def change_update(self, step: TrainStep, optimizer: Optimizer) -> Optimizer:
        """Return the optimizer that takes the place of the user's, with the same groups."""
        return optimizer

    def change_program(self, step: ProgramStep) -> None:
        """Put this technique into the step of a program."""
        raise NotImplementedError

    def share_of_bytes(self) -> float:
        """Return by which factor it changes what the other stages send in an average step."""
        return 1.0

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the lines that explain this technique and its costs."""
        raise NotImplementedError
