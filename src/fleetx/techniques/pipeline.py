"""pipeline: workers have different layers of a model, and pass micro-batches on to each other.

A batch is divided into `accumulate_steps` micro-batches, of which several are under way at a time:
`model.train_batch((x, y), optimizer)` runs them forward and backward by torch's schedules and
updates. The loss is computed by the last stage. Workers may divide the layers or the state of a
stage, and copies of the pipeline average gradients, or what a technique such as `localsgd` has them
exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from fleetx.comm.layout import Group
from fleetx.step.degrees import micro_batches
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import Effect, setting
from fleetx.step.stages import LocalGradients, Parameters, Stage, Update
from fleetx.step.technique import Order, Row, Sizes
from fleetx.step.text_table import size
from fleetx.step.train_step import TrainStep
from fleetx.techniques.dividing import DividingTechnique
from fleetx.techniques.pipeline_checks import check_program
from fleetx.techniques.pipeline_program import CutProgram
from fleetx.techniques.pipeline_runner import (
    JOINED,
    MANY_STAGES,
    PipelineRunner,
    StageModule,
    workers_of,
)
from fleetx.techniques.pipeline_stages import OwnStage, find_layers
from fleetx.techniques.pipeline_times import example_inputs, measure_layers
from fleetx.techniques.random_state import SharedRandomNumbers
from fleetx.techniques.sharding_state import gather_state, part_of_state, state_copies


@dataclass(frozen=True, kw_only=True)
class Config:
    """How a batch is divided, and where a model is cut."""

    micro_batch_size: int = setting(1, number=1, since="2.1", least=1)
    """Samples per micro-batch, if it is set: batches must have accumulate_steps times as many."""
    accumulate_steps: int = setting(1, number=2, since="2.1", least=1)
    """Micro-batches per batch; as many as stages, unless it is set."""
    schedule_mode: str = setting(
        "1F1B", number=3, since="2.1", choices=("1F1B", "F-then-B", "VPP", "ZBVPP")
    )
    """Order of forward and backward: alternating, all forward first (GPipe), alternating with
    several stages per worker (interleaved), or with two and backward in two parts (zero bubble)."""
    p2p_cache_shape: bool = setting(True, number=4, since="2.2", effect=Effect.NONE)
    """Shapes between stages stay."""
    enable_partial_send_recv: bool = setting(True, number=5, since="2.3", effect=Effect.NONE)
    """Split what stages send."""
    micro_batch: int = setting(1, number=1001, since="2.0", least=1)
    """`accumulate_steps` of 2.0."""
    stages: tuple[str, ...] = setting((), number=1002, element=str)
    """Layers that the stages after the first begin with; without them, `cut_by` says how."""
    cut_by: str = setting("parameters", number=1004, choices=("parameters", "time"))
    """What stages have about equally much of: parameters, or time of forward and backward, measured
    with the inputs that the model's method `pipeline_inputs()` returns."""
    vpp_degree: int = setting(1, number=1003, least=1)
    """Stages per worker with the schedules VPP and ZBVPP; 2, unless it is set."""


class StageUpdate(Update):
    """The optimizer updates the parameters of this stage, and has state for no others.

    How it updates them, where workers divide a stage, is up to the update inside.
    """

    def __init__(self, group: Group, inside: Update) -> None:
        self._group = group
        self._inside = inside
        self._others: list[Tensor] = []

    def watch(self, optimizer: Optimizer, stage: OwnStage, parameters: Parameters) -> None:
        """Note the parameters of other stages; drop state that was loaded for them before the model
        was cut, which nothing here would keep up to date."""
        self._others = [p for name, p in parameters.items() if not stage.has(name)]
        for parameter in self._others:
            optimizer.state.pop(parameter, None)

    def apply(self, optimizer: Optimizer) -> None:
        """Update the parameters of this stage."""
        self._inside.apply(optimizer)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the state of all stages as one; all workers must call it."""
        return gather_state(self._inside.optimizer_state(optimizer), self._group)

    def load_optimizer_state(self, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
        """Load the part of a whole state that this stage has."""
        own = part_of_state(optimizer, state, without=self._others)
        self._inside.load_optimizer_state(optimizer, own)


@register
class Pipeline(DividingTechnique[Config]):
    """Different layers on different workers."""

    name = "pipeline"
    axis = "pp"
    since, numbers = "2.0", (9, 106)
    order = Order.CUT
    wraps = frozenset({Stage.GRAD_SYNC, Stage.UPDATE, Stage.PARAM_SYNC})

    _stage: OwnStage | None = None
    _program: CutProgram | None = None
    _whole_bytes = _own_bytes = 0

    # -- checks ---------------------------------------------------------------------------
    def check(self) -> None:
        """Refuse jobs in which it cannot act."""
        super().check()
        self._check_stages_each()
        self._check_shards()
        if self.config.stages and self.config.cut_by == "time":
            raise ValueError(
                "pipeline_configs['cut_by'] is 'time', by which layers are measured to find the "
                f"stages, but 'stages' names {', '.join(self.config.stages)}: leave one of them "
                "out."
            )

    def _check_module(self) -> None:
        """Refuse what PyTorch's schedules cannot run."""
        self.check_torch("pipeline", "switch it off, or use sharding with stage 2")
        stages = self.job.layout.degrees.pp
        if self.micro_batches < stages and self.config.schedule_mode == "1F1B":
            raise ValueError(
                f"pipeline_configs['accumulate_steps'] is {self.micro_batches}, but the schedule "
                f"1F1B of {stages} stages needs at least {stages} micro-batches: set it to a "
                f"multiple of {stages}, or schedule_mode to 'F-then-B'."
            )

    def _check_stages_each(self) -> None:
        mode, each = self.config.schedule_mode, self.config.vpp_degree
        is_set = "vpp_degree" in getattr(self.job.strategy.pipeline_configs, "given", ())
        rule = {"VPP": each > 1, "ZBVPP": each == 2}.get(mode, each == 1)
        if is_set and not rule:
            wanted = {"VPP": "at least 2", "ZBVPP": "2"}.get(mode, "1")
            raise ValueError(
                f"pipeline_configs['vpp_degree'] is {each}, but with the schedule_mode {mode!r} a "
                f"worker has {wanted} stage(s): leave it out, or choose another schedule_mode "
                "('VPP' interleaves any number of stages)."
            )
        workers, count = self.job.layout.degrees.pp, self.micro_batches
        if mode == "VPP" and count % max(1, count // workers):
            raise ValueError(
                f"pipeline_configs['accumulate_steps'] is {count}, but the schedule VPP sends "
                f"micro-batches round {workers} workers: set it to a multiple of {workers}."
            )

    def _check_shards(self) -> None:
        if self.sharding_stage == 3 and self.config.schedule_mode == "ZBVPP":
            raise ValueError(
                "pipeline_configs['schedule_mode'] is 'ZBVPP', by which gradients of parameters "
                "are computed apart from backward, where PyTorch's fully_shard (sharding with "
                "stage 3) does not exchange them: set schedule_mode to 'VPP', or "
                "sharding_configs['stage'] to 2."
            )

    @property
    def stages_each(self) -> int:
        """How many stages a worker has."""
        if self.config.schedule_mode not in MANY_STAGES:
            return 1
        return max(2, self.config.vpp_degree)

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches."""
        return micro_batches(self.job.strategy, self.job.layout.degrees.pp)

    # -- the step -------------------------------------------------------------------------
    def change_step(self, step: TrainStep) -> None:
        """Cut the model, and let copies exchange what a stage has."""
        self._check_module()
        self._activations = step.count_activations()
        self.check_loss_scale(
            step,
            "pipeline",
            "whose stages would have to agree on an overflow before the last one computes the loss",
        )
        group = self.job.layout.group("pp")
        self.share_clip(step, "pipeline")
        owner = step.owner("grad_sync")
        if owner is None or not owner.divides:
            self.exchange_between_copies(step, self._own)
        update = StageUpdate(group, step.updater)
        step.updater = update

        def watch(parameters: dict[str, Tensor]) -> None:
            if self._stage is not None:
                update.watch(step.update, self._stage, parameters)

        # Others divide what this worker has left, and hear of it afterwards.
        step.placers.insert(0, lambda model: self._cut(step, model))
        step.when_named.insert(0, watch)

    def change_program(self, step: ProgramStep) -> None:
        """Cut the program by the devices of its layers (`device_guard`)."""
        check_program(step, self.job, self.config)
        layout = self.job.layout
        self._program = CutProgram(
            layout.group("pp"),
            layout.group("pp", twin=True),
            layout.group("dp"),
            micro_batches=self.micro_batches,
            micro_batch_size=self._micro_batch_size,
            mode=self.config.schedule_mode,
        )
        step.grad_sync, step.param_sync = LocalGradients(), self._program
        step.starts_equal = False  # stages have different parameters

    @property
    def _micro_batch_size(self) -> int | None:
        """The samples of a micro-batch; None if it is not set."""
        is_sized = "micro_batch_size" in self.job.strategy.pipeline_configs.given
        return self.config.micro_batch_size if is_sized else None

    def _cut(self, step: TrainStep, model: nn.Module) -> None:
        """Leave this worker its stages of a model, and let them run batches."""
        group = self.job.layout.group("pp")
        self._whole_bytes = _trained_bytes(model)
        workers = workers_of(self.config.schedule_mode, group.size, self.stages_each)
        costs = self._seconds_of_layers(step, model)
        stage = self._stage = OwnStage(model, group, self.config.stages, workers, costs)
        stage.keep(model)
        self._own_bytes = _trained_bytes(model)
        modules = {number: StageModule(layers) for number, layers in stage.layers.items()}
        for module in modules.values():
            module.forward = step.precision.wrap_forward(module.forward)  # type: ignore[method-assign]
        stage.roots = list(modules.values())
        step.stage_state = stage
        step.batches = PipelineRunner(
            modules,
            workers,
            group,
            copy=self.job.layout.group("pp", "mp"),
            micro_batches=self.micro_batches,
            micro_batch_size=self._micro_batch_size,
            mode=self.config.schedule_mode,
            joins=SharedRandomNumbers(self.job.layout.group("mp")) if self.joins_batches else None,
            activations=self._activations,
        )

    def _seconds_of_layers(self, step: TrainStep, model: nn.Module) -> list[float]:
        """Return what the layers take on an average worker; nothing if they are not to be
        measured."""
        if self.config.cut_by != "time":
            return []
        inputs = example_inputs(model)
        own = measure_layers(find_layers(model), inputs, step.precision.wrap_forward)
        return [sum(self.job.gather(each)) for each in own]

    def _own(self, parameters: Parameters) -> Parameters:
        assert self._stage is not None
        return self._stage.own(parameters)

    # -- explaining -----------------------------------------------------------------------
    def rows(self, sizes: Sizes) -> list[Row]:
        """Return what this stage holds, with gradients and optimizer state."""
        place, stages = self.job.layout.place["pp"], self.job.layout.degrees.pp
        each = self.stages_each
        text = f"{each} stages on worker" if each > 1 else "stage"
        text += f" {place + 1} of {stages}, {self.config.schedule_mode}, "
        text += f"{self.micro_batches} micro-batches, "
        own, whole = self._own_bytes, self._whole_bytes
        if self._program is None:
            copies, sent = state_copies(self._optimizer), self._activations.sent("pp")
        else:
            own, whole = self._program.own_bytes, self._program.whole_bytes
            copies, sent = self._program.state_copies, float(self._program.bytes_sent)
        text += f"{size(own)} of parameters"
        found = Row(
            stage=Stage.MEMORY,
            technique=self.name,
            settings=text,
            memory=float(own - whole) * (2 + copies),
            activations=sent,
            axes=("pp",),
        )
        return [found, self._joining()] if self.joins_batches else [found]

    def _joining(self) -> Row:
        """Return what workers of a copy send to join their batches."""
        return Row(
            stage=Stage.MEMORY,
            technique=self.name,
            settings="joined batches",
            activations=self._activations.sent(*JOINED),
            axes=JOINED,
        )


def _trained_bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
