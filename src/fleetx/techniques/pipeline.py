"""pipeline: workers have different layers of a model, and pass micro-batches on to each other.

A batch is divided into `accumulate_steps` micro-batches, of which several are under way at a time:
`model.train_batch((x, y), optimizer)` runs them forward and backward by torch's schedules and
updates. The loss is computed by the last stage. Copies of the pipeline average gradients, or what a
technique such as `localsgd` has them exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from fleetx.comm.layout import Group
from fleetx.step.degrees import hybrid_degree
from fleetx.step.gradient_sync import AfterBackward
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import Effect, setting
from fleetx.step.stages import LocalGradients, Parameters, ParameterSync, Stage, Update
from fleetx.step.technique import Order, Row, Sizes, Technique
from fleetx.step.text_table import size
from fleetx.step.train_step import TrainStep
from fleetx.techniques.amp import MixedPrecision
from fleetx.techniques.copies import BetweenFirst, InsideFirst
from fleetx.techniques.gradient_clip import Clip
from fleetx.techniques.pipeline_runner import PipelineRunner, StageModule
from fleetx.techniques.pipeline_stages import OwnStage
from fleetx.techniques.sharding_parameters import can_divide
from fleetx.techniques.sharding_state import gather_state, load_part, state_copies


@dataclass(frozen=True, kw_only=True)
class Config:
    """How a batch is divided, and where a model is cut."""

    micro_batch_size: int = setting(1, number=1, since="2.1", least=1)
    """Samples per micro-batch, if it is set: batches must have accumulate_steps times as many."""
    accumulate_steps: int = setting(1, number=2, since="2.1", least=1)
    """Micro-batches per batch; as many as stages, unless it is set."""
    schedule_mode: str = setting("1F1B", number=3, since="2.1", choices=("1F1B", "F-then-B"))
    """Order of forward and backward: alternating, or all forward first (GPipe)."""
    p2p_cache_shape: bool = setting(True, number=4, since="2.2", effect=Effect.NONE)
    """Shapes between stages stay."""
    enable_partial_send_recv: bool = setting(True, number=5, since="2.3", effect=Effect.NONE)
    """Split what stages send."""
    micro_batch: int = setting(1, number=1001, since="2.0", least=1)
    """`accumulate_steps` of 2.0."""
    stages: tuple[str, ...] = setting((), number=1002, element=str)
    """Layers that the stages after the first begin with; without them, parameters are divided
    evenly."""


class StageAverage(AfterBackward):
    """Averages the gradients of a stage over all copies; stages have different ones."""

    keeps_no_state = divides = True


class StageUpdate(Update):
    """The optimizer updates the parameters of this stage, and has state for no others."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._others: list[Tensor] = []

    def watch(self, stage: OwnStage, parameters: Parameters) -> None:
        """Note the parameters of other stages."""
        self._others = [p for name, p in parameters.items() if not stage.has(name)]

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the state of all stages as one; all workers must call it."""
        return gather_state(optimizer, self._group)

    def load_optimizer_state(self, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
        """Load the part of a whole state that this stage has."""
        load_part(optimizer, state, without=self._others)


@register
class Pipeline(Technique[Config]):
    """Different layers on different workers."""

    name = "pipeline"
    order = Order.PLACE
    since, numbers = "2.0", (9, 106)
    needs_workers = True
    wraps = frozenset({Stage.GRAD_SYNC, Stage.PARAM_SYNC})
    refuses = {
        "sharding": "FleetX divides the state of whole models, not of stages",
        "tensor_parallel": "FleetX divides the layers of whole models, not of stages",
    }
    divides = True
    gathers_state = True
    keeps_mathematics = True

    _optimizer: Optimizer
    _stage: OwnStage | None = None
    _whole_bytes = 0

    @classmethod
    def is_on(cls, strategy: Any) -> bool:
        """Return whether a strategy asks for it, by the switch or by `hybrid_configs`."""
        return bool(getattr(strategy, cls.name, False)) or hybrid_degree(strategy, "pp") > 1

    @classmethod
    def trials(cls, strategy: Any, device: str) -> list[tuple[str, dict[str, Any]]]:
        """Return nothing: scripts call `train_batch` for it."""
        return []

    # -- checks ---------------------------------------------------------------------------
    def check(self) -> None:
        """Refuse jobs in which it cannot act."""
        if self.job.servers is not None:
            raise ValueError(
                "the strategy switches on pipeline, but in a job with parameter servers these have "
                "the parameters: switch it off, or start no servers."
            )
        if getattr(self.job.strategy, "auto", False):
            raise ValueError(
                "the strategy switches on auto, which tries strategies on copies of the whole "
                "model, and pipeline, which is for models without room for copies: switch off one "
                "of them."
            )
        if not can_divide():
            raise ValueError(
                f"pipeline needs PyTorch 2.7 or newer, but this is {torch.__version__}: switch it "
                "off, or take sharding with stage 2."
            )
        stages = self.job.layout.degrees.pp
        if self.micro_batches < stages and self.config.schedule_mode == "1F1B":
            raise ValueError(
                f"pipeline_configs['accumulate_steps'] is {self.micro_batches}, but the schedule "
                f"1F1B of {stages} stages needs at least {stages} micro-batches: set it to a "
                f"multiple of {stages}, or schedule_mode to 'F-then-B'."
            )

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches."""
        given = getattr(self.job.strategy.pipeline_configs, "given", ())
        for key in ("accumulate_steps", "micro_batch"):
            if key in given:
                return int(getattr(self.config, key))
        return self.job.layout.degrees.pp

    def check_optimizer(self, optimizer: Any) -> None:
        """Refuse an optimizer that looks at all parameters at once."""
        if isinstance(optimizer, LBFGS):
            raise ValueError(
                "the strategy switches on pipeline, which leaves each worker the parameters of a "
                "stage, but LBFGS updates all of them together: take another optimizer."
            )

    # -- the step -------------------------------------------------------------------------
    def change_program(self, step: ProgramStep) -> None:
        """Refuse programs."""
        raise ValueError(
            "the strategy switches on pipeline, which FleetX can do for modules but not for "
            "programs: switch it off, or train a torch.nn.Module."
        )

    def change_step(self, step: TrainStep) -> None:
        """Cut the model, and let copies exchange what a stage has."""
        precision = step.precision
        if isinstance(precision, MixedPrecision) and precision.config.scales:
            raise ValueError(
                "the strategy switches on amp with a loss scale and pipeline, whose stages would "
                "have to agree on an overflow before the last one computes the loss: set "
                "amp_configs = {'dtype': 'bfloat16'}, which needs no scale."
            )
        group = self.job.layout.group("pp")
        if isinstance(step.clip, Clip):
            step.clip.reduce = group.all_reduce
        elif step.clip is not None:
            raise ValueError(
                "the strategy switches on pipeline, which leaves each worker the gradients of a "
                "stage, but another technique clips all of them: clip by gradient_clip."
            )
        if step.owner("grad_sync") is None:
            step.grad_sync = StageAverage(self.job.exchange(), step.precision.message_scale)
        else:
            # Inside a copy there is nothing to exchange: each worker has its stage.
            step.grad_sync = InsideFirst(LocalGradients(), step.grad_sync, self._own)
            step.param_sync = BetweenFirst(step.param_sync, ParameterSync(), self._own)
        update = StageUpdate(group)
        step.updater = update

        def cut(model: nn.Module) -> None:
            trained = [p for p in model.parameters() if p.requires_grad]
            self._whole_bytes = sum(p.numel() * p.element_size() for p in trained)
            stage = self._stage = OwnStage(model, group, self.config.stages)
            stage.keep(model)
            module = StageModule(stage.layers)
            module.forward = step.precision.wrap_forward(module.forward)  # type: ignore[method-assign]
            step.stage_state = stage
            is_sized = "micro_batch_size" in self.job.strategy.pipeline_configs.given
            step.batches = PipelineRunner(
                module,
                group,
                micro_batches=self.micro_batches,
                micro_batch_size=self.config.micro_batch_size if is_sized else None,
                mode=self.config.schedule_mode,
            )

        def watch(parameters: dict[str, Tensor]) -> None:
            if self._stage is not None:
                update.watch(self._stage, parameters)

        step.placers.append(cut)
        step.when_named.append(watch)

    def _own(self, parameters: Parameters) -> Parameters:
        assert self._stage is not None
        return self._stage.own(parameters)

    def change_update(self, step: TrainStep, optimizer: Optimizer) -> Optimizer:
        """Note the optimizer, on which the size of its state depends."""
        self._optimizer = optimizer
        return optimizer

    # -- explaining -----------------------------------------------------------------------
    def rows(self, sizes: Sizes) -> list[Row]:
        """Return what this stage holds, with gradients and optimizer state."""
        place, stages = self.job.layout.place["pp"], self.job.layout.degrees.pp
        text = f"stage {place + 1} of {stages}, {self.config.schedule_mode}, "
        text += f"{self.micro_batches} micro-batches, "
        text += f"{size(sizes.parameter_bytes)} of parameters; activations travel too"
        saved = sizes.parameter_bytes - self._whole_bytes if self._stage is not None else 0
        return [
            Row(
                stage=Stage.MEMORY,
                technique=self.name,
                settings=text,
                memory=float(saved) * (2 + state_copies(self._optimizer)),
            )
        ]
