"""What a technique is: a switch of the strategy that changes stages of the step.

A technique is one file: a dataclass with its settings, its stages, and a `Technique` that declares
the stages it replaces and those it wraps, rejects jobs in which it cannot act, and puts its stages
into a step. `registry.register` adds its switch and settings to the strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Generic, TypeVar, cast, get_args, get_origin

import torch
from torch.optim import Optimizer

from fleetx.comm import world
from fleetx.comm.gradient_all_reduce import AllReduceSettings, GradientAllReduce, GradientExchange
from fleetx.comm.layout import Layout
from fleetx.step.degrees import degrees_of
from fleetx.step.program_step import ProgramStep
from fleetx.step.servers import JobServers
from fleetx.step.settings import read
from fleetx.step.stages import Stage
from fleetx.step.train_step import TrainStep

C = TypeVar("C")


def refuse(setting: str, reason: str) -> None:
    """Raise ValueError for a setting of the optimizer that a technique does not support."""
    raise ValueError(f"{reason}: set {setting}=False.")


@dataclass(frozen=True, kw_only=True)
class Job:
    """The description of a job that techniques receive."""

    strategy: Any
    """The DistributedStrategy."""
    workers: int = 1
    all_reduce: AllReduceSettings = AllReduceSettings()
    bucket_mb: float = 32.0
    last_bucket_mb: float = 1.0
    bucket_count: int = 0
    """Maximum number of gradients in a bucket of a program; 0 for no limit."""
    rank: int = 0
    """The rank of this worker."""
    machines: int = 1
    """Machines with workers; each has equally many, with consecutive ranks."""
    share: str = ""
    """In an elastic job, the variable of a program with 1 / the current number of workers."""
    servers: JobServers | None = None
    """The job's parameter servers, if it has any."""
    unsupported: Callable[[str, str], None] = refuse
    """Called with a setting of the optimizer that a technique does not support, and the reason:
    raises ValueError, or ignores the setting.
    """

    @cached_property
    def layout(self) -> Layout:
        """Which workers divide layers, state and stages, and which are copies."""
        return Layout(degrees_of(self.strategy, self.workers), self.rank)

    @property
    def per_machine(self) -> int:
        """Workers on each machine."""
        return max(1, self.workers // self.machines)

    @property
    def copies(self) -> int:
        """Copies of the model: the workers that exchange gradients or parameters with each other,
        if every copy is one worker."""
        return self.layout.degrees.dp

    def gather(self, value: float) -> list[float]:
        """Return the numbers of all workers that wait for each other in a step, by rank; all of
        them must call it together."""
        if self.servers is not None:
            return self.servers.gather(value)
        number = torch.tensor(value, dtype=torch.float64)
        return [float(each) for each in world.all_gather(number)]

    def exchange(self, *axes: str) -> GradientExchange:
        """Return how gradients are summed over copies of the model, or over workers along other
        dimensions; all workers must call it together."""
        group = None if self.layout.is_plain else self.layout.group(*(axes or ("dp",)))
        return GradientExchange(
            GradientAllReduce(self.all_reduce, group),
            limit_mb=self.bucket_mb,
            last_mb=self.last_bucket_mb,
            limit_count=self.bucket_count,
        )


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes that costs depend on."""

    shapes: tuple[tuple[int, ...], ...]
    """The shape of each trained parameter."""
    element_bytes: int = 4
    buffer_elements: int = 0
    """Floating statistics that are not trained."""
    device: str = "cpu"
    """The kind of device that the parameters are on."""

    @cached_property
    def elements(self) -> tuple[int, ...]:
        """Elements of each trained parameter."""
        return tuple(map(prod, self.shapes))

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all trained parameters, and of all their gradients."""
        return sum(self.elements) * self.element_bytes


def ring_bytes(count: float, workers: int) -> float:
    """Return the bytes that one worker sends in a ring all-reduce."""
    # PADDLE_TRAINERS_NUM=0 is accepted as Paddle accepts it; no worker sends anything then.
    return 2.0 * (workers - 1) / workers * count if workers else 0.0


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
    activations: float | None = 0.0
    """Bytes of activations that one worker sends in a step, which no technique shares in; None
    until a step was counted, because the batch decides how large they are."""
    axes: tuple[str, ...] = ("dp",)
    """The dimensions of the job along which the worker sends."""
    bytes_received: float = 0.0
    """From servers in an average step, before other techniques' `share_of_bytes`."""
    short: str = ""
    """Its text in the one-line summary of the step; the technique's name if empty."""


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """The `Config` of a technique that is only switched on or off."""


class Order(IntEnum):
    """The order in which techniques change a step: later ones wrap what earlier ones put there."""

    UPDATE = 1
    """Replaces the update."""
    CLIP = 2
    """Changes gradients between exchange and update."""
    MEMORY = 3
    PRECISION = 4
    MESSAGE = 5
    """Changes how messages are sent."""
    EXCHANGE = 6
    """Replaces the exchange of gradients or parameters."""
    PLACE = 7
    """Divides the model between workers, around the exchange between copies."""
    CUT = 8
    """Gives workers different layers, around the division of each."""
    COLLECT = 9
    """Decides which backward passes are exchanged."""
    WATCH = 10
    """Looks on, and may stop the training."""


class Technique(Generic[C]):
    """Base of all techniques; `class Mine(Technique[Config])` has the settings of `Config`."""

    name: ClassVar[str]
    """The switch on the strategy; its settings are `<name>_configs`."""
    order: ClassVar[Order]
    Config: ClassVar[type] = NoSettings
    """The dataclass of its settings; taken from `Technique[...]`."""
    since: ClassVar[str] = "fleetx"
    """The Paddle version that brought the switch, or "fleetx"."""
    numbers: ClassVar[tuple[int, int] | None] = None
    """The numbers of switch and settings in Paddle's distributed_strategy.proto; None: chosen by
    the name."""
    switch: ClassVar[str] = ""
    """The switch of a strategy that has it already, with `<switch>_configs`; if empty, strategies
    get one of the technique's name."""
    replaces: ClassVar[frozenset[Stage]] = frozenset()
    relocates: ClassVar[frozenset[Stage]] = frozenset()
    """Stages of `replaces` that it only runs elsewhere: what they compute is up to the script or to
    other techniques, which may replace them too."""
    wraps: ClassVar[frozenset[Stage]] = frozenset()
    refuses: ClassVar[Mapping[str, str]] = {}
    """Other techniques it cannot be combined with although no stage is claimed twice, with the
    reason as a clause."""
    because: ClassVar[tuple[str, str]] = ("", "")
    """What brings it into a job and how to do without it, as clauses, where that is not a switch of
    the strategy."""
    needs_workers: ClassVar[bool] = False
    """Changes only what is between workers: with a single one there is nothing to do."""
    differs_by_worker: ClassVar[bool] = False
    """Workers have state of their own, which a checkpoint must hold for each."""
    gathers_state: ClassVar[bool] = False
    """Workers have parts of one state, which all must gather before one of them can save it."""
    divides: ClassVar[bool] = False
    """Divides the model between workers, around the exchange between copies."""
    between_copies: ClassVar[bool] = False
    """Can exchange between copies of a model that is divided between workers."""
    keeps_mathematics: ClassVar[bool] = False
    """Training with it gives the same parameters but for rounding: `auto` may try it unasked."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__dict__.get("__orig_bases__", ()):
            origin = get_origin(base)
            if isinstance(origin, type) and issubclass(origin, Technique):
                (config,) = get_args(base)
                if isinstance(config, type):
                    cls.Config = config

    def __init__(self, job: Job) -> None:
        self.job = job

    @cached_property
    def config(self) -> C:
        """The technique's settings on the strategy, checked."""
        values = getattr(self.job.strategy, f"{self.switch or self.name}_configs", {})
        return cast("C", read(self.Config, values))

    @classmethod
    def is_on(cls, strategy: Any) -> bool:
        """Return whether a strategy asks for this technique."""
        return bool(getattr(strategy, cls.name, False))

    @classmethod
    def acts_in(cls, job: Job) -> bool:
        """Return whether it changes this job's step: by default if the strategy asks for it."""
        return cls.is_on(job.strategy)

    def check(self) -> None:
        """Raise ValueError, with a sentence that says what to do, if it cannot act in this job."""

    def change_messages(self, settings: AllReduceSettings) -> AllReduceSettings:
        """Return how gradients are summed over workers with this technique."""
        return settings

    def check_optimizer(self, optimizer: Any) -> None:
        """Raise ValueError if it cannot act on this optimizer, of torch or of programs."""

    def change(self, step: TrainStep | ProgramStep) -> None:
        """Put this technique's stages into a step of either front end.

        A technique whose stages work on tensors by name needs nothing else; others have
        `change_step` and `change_program`.
        """
        raise TypeError(
            f"the technique {self.name} cannot change the step of a {step.trains}: write `change` "
            f"or `change_{'step' if step.trains == 'module' else 'program'}` for it, or switch off "
            f"{self.name}."
        )

    def change_step(self, step: TrainStep) -> None:
        """Put this technique's stages into the step of a PyTorch module, all but the update."""
        self._change(step, acts_elsewhere=type(self).change_update is not Technique.change_update)

    def change_update(self, step: TrainStep, optimizer: Optimizer) -> Optimizer:
        """Return the optimizer that takes the place of the user's, with the same groups."""
        return optimizer

    def change_program(self, step: ProgramStep) -> None:
        """Put this technique's stages into the step of a program."""
        self._change(step)

    def _change(self, step: TrainStep | ProgramStep, *, acts_elsewhere: bool = False) -> None:
        kind = type(self)
        acts_elsewhere |= kind.change_messages is not Technique.change_messages
        if kind.change is not Technique.change or not acts_elsewhere:
            self.change(step)

    def elastic_obstacle(self) -> str:
        """Return why its settings cannot be used in an elastic job and what to do, as a clause."""
        return ""

    @classmethod
    def trials(cls, strategy: Any, device: str) -> list[tuple[str, dict[str, Any]]]:
        """Return how `auto` may try it on a kind of device: names, and settings to change."""
        return [(cls.name, {cls.name: True})]

    def cycle(self) -> int:
        """Return after how many steps what it sends and updates repeats."""
        return 1

    def share_of_bytes(self) -> float:
        """Return by which factor it changes what the other stages send in an average step."""
        return 1.0

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the lines that explain this technique and its costs."""
        raise NotImplementedError
