"""What sharding, tensor_parallel and pipeline have in common: techniques that divide a model.

Each worker holds a part of the model. Groups of workers hold copies of it, and other techniques
communicate between these copies.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import torch
from torch.optim import LBFGS, Optimizer

from fleetx.step.activations import Activations
from fleetx.step.degrees import hybrid_degree, joins_batches
from fleetx.step.gradient_sync import AfterBackward
from fleetx.step.program_step import ProgramStep
from fleetx.step.stages import LocalGradients, ParameterSync, Stage
from fleetx.step.technique import Job, Order, Technique
from fleetx.step.train_step import TrainStep
from fleetx.techniques.amp import MixedPrecision
from fleetx.techniques.copies import BetweenFirst, InsideFirst, Own
from fleetx.techniques.gradient_clip import Clip
from fleetx.techniques.replaced_optimizer import ReplacedOptimizer
from fleetx.techniques.sharding_parameters import can_divide

C = TypeVar("C")


class AveragedParts(AfterBackward):
    """Averages over all copies the gradients that a worker has; inside a copy they differ."""

    keeps_no_state = divides = True


class DividingTechnique(Technique[C]):
    """Base of techniques that leave each worker a part of the model."""

    order = Order.PLACE
    needs_workers = True
    wraps = frozenset({Stage.GRAD_SYNC, Stage.PARAM_SYNC})
    divides = True
    gathers_state = True
    keeps_mathematics = True

    axis: ClassVar[str]
    """Its dimension in `hybrid_configs`."""
    _optimizer: Optimizer

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._activations = Activations()  # those of a step, once it has one

    @classmethod
    def is_on(cls, strategy: Any) -> bool:
        """Return whether a strategy asks for it, by the switch or by `hybrid_configs`."""
        return bool(getattr(strategy, cls.name, False)) or hybrid_degree(strategy, cls.axis) > 1

    @classmethod
    def trials(cls, strategy: Any, device: str) -> list[tuple[str, dict[str, Any]]]:
        """Return nothing: it makes no step faster, and the script must support it."""
        return []

    @property
    def sharding_stage(self) -> int:
        """The stage of `sharding`; 0 if workers divide no state."""
        if self.job.layout.degrees.sharding == 1:
            return 0
        return int(self.job.strategy.sharding_configs["stage"])

    @property
    def joins_batches(self) -> bool:
        """Whether the workers of a copy bring different samples."""
        return joins_batches(self.job.strategy)

    # -- checks ---------------------------------------------------------------------------
    def check(self) -> None:
        """Reject jobs in which no model can be divided."""
        if self.job.servers is not None:
            raise ValueError(
                f"the strategy switches on {self.name}, which divides parameters or their state "
                "between workers, but in a job with parameter servers those hold and update them: "
                f"switch off {self.name}, or start no servers."
            )
        if getattr(self.job.strategy, "auto", False):
            raise ValueError(
                f"the strategy switches on auto and {self.name}, but auto decides itself how a "
                f"model is divided: switch off {self.name} and set "
                "auto_configs['worker_memory_mb'], or switch off auto."
            )

    def check_torch(self, what: str, way: str) -> None:
        """Refuse what this version of PyTorch has no engine for; `way` says what to do instead."""
        if not can_divide():
            raise ValueError(
                f"{what} needs PyTorch 2.7 or newer, but this is {torch.__version__}: {way}."
            )

    def check_optimizer(self, optimizer: Any) -> None:
        """Refuse an optimizer that looks at all parameters at once."""
        if isinstance(optimizer, LBFGS):
            raise ValueError(
                f"the strategy switches on {self.name}, which leaves each worker a part of the "
                "parameters, but LBFGS updates all of them together: use another optimizer, or "
                f"switch off {self.name}."
            )

    def check_loss_scale(self, step: TrainStep, what: str, why: str, way: str = "") -> None:
        """Refuse a loss scale; `why` says as a clause what it would need."""
        precision = step.precision
        if isinstance(precision, MixedPrecision) and precision.config.scales:
            raise ValueError(
                f"the strategy switches on amp with a loss scale and {what}, {why}: set "
                f"amp_configs = {{'dtype': 'bfloat16'}}, which needs no scale{way}."
            )

    def check_whole_layers(self, optimizer: Optimizer, what: str, way: str) -> None:
        """Refuse LARS and LAMB, whose norms are those of whole layers."""
        if isinstance(optimizer, ReplacedOptimizer):
            name = type(optimizer).__name__.lower()
            raise ValueError(
                f"the strategy switches on {name}, which updates by the norms of whole layers, and "
                f"{what}, which divides layers: switch off {name} or {way}."
            )

    # -- the step -------------------------------------------------------------------------
    def change_program(self, step: ProgramStep) -> None:
        """Refuse programs."""
        raise ValueError(
            f"the strategy switches on {self.name}, which FleetX can do for modules but not for "
            "programs: switch it off, or train a torch.nn.Module."
        )

    def change_update(self, step: TrainStep, optimizer: Optimizer) -> Optimizer:
        """Record the optimizer, which determines the size of its state."""
        self._optimizer = optimizer
        return optimizer

    def share_clip(self, step: TrainStep, what: str, way: str = "") -> None:
        """Let a clip by norm add up the parts of all workers of a copy."""
        if isinstance(step.clip, Clip):
            axes = ("pp", "sharding", "mp") if self.sharding_stage > 1 else ("pp", "mp")
            step.clip.reduce = self.job.layout.group(*axes).all_reduce
        elif step.clip is not None:
            owner = step.owner("clip")
            name = type(step.clip).__name__ if owner is None else owner.name
            raise ValueError(
                f"the strategy switches on {what}, which leaves each worker a part of the "
                f"gradients, but {name} clips all of them: {way}clip by gradient_clip."
            )

    def exchange_between_copies(self, step: TrainStep, own: Own) -> None:
        """Exchange a worker's part with its counterparts only: inside a copy no other worker has
        it.

        Copies average gradients, or use the exchange of another technique.
        """
        if step.owner("grad_sync") is None:
            exchange = self.job.exchange("dp", "sharding")  # those with the same part
            step.grad_sync = AveragedParts(exchange, step.precision.message_scale)
        else:
            step.grad_sync = InsideFirst(LocalGradients(), step.grad_sync, own)
            step.param_sync = BetweenFirst(step.param_sync, ParameterSync(), own)
