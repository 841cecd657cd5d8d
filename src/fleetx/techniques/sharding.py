"""sharding: optimizer state, gradients and parameters are sharded across workers (ZeRO).

    stage 1   optimizer state: gradients are averaged as usual, each worker updates the parameters
              that it owns and sends them to the others
    stage 2   gradients too: each one travels to its owner only
    stage 3   parameters too: a block of the model is gathered while it computes (`fully_shard`)

Stages replace grad_sync and param_sync; the update runs where the state is. Results are those of
training without but for rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer

from fleetx.step.gradient_sync import AfterBackward
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import Effect, rows_of, setting
from fleetx.step.stages import GradientSync, ParameterSync, Stage
from fleetx.step.technique import Row, Sizes
from fleetx.step.train_step import TrainStep
from fleetx.techniques.amp import MixedPrecision
from fleetx.techniques.copies import BetweenFirst, InsideFirst, OwnParts, check_parts
from fleetx.techniques.divided_update import DividedUpdate
from fleetx.techniques.dividing import DividingTechnique
from fleetx.techniques.sharding_costs import ShardingCosts
from fleetx.techniques.sharding_owners import (
    Owners,
    OwnersUpdate,
    ReducedToOwners,
    SentByOwners,
)
from fleetx.techniques.sharding_parameters import DividedParameters
from fleetx.techniques.sharding_program import ShardedProgram, check_program
from fleetx.techniques.sharding_state import state_copies


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is divided, and in which portions it travels."""

    sharding_segment_strategy: str = setting(
        "segment_broadcast_MB",
        number=1,
        since="2.1",
        choices=("segment_broadcast_MB", "segment_anchors"),
    )
    """By what the blocks of stage 3 are found: repeated classes, or `segment_anchors`."""
    segment_broadcast_MB: float = setting(32.0, number=2, since="2.1", above=0)
    """Size of a message of parameters or gradients (stages 1 and 2)."""
    segment_anchors: tuple[str, ...] = setting((), number=3, since="2.1", element=str)
    """Modules that stage 3 gathers one at a time: names, patterns or classes."""
    sharding_degree: int = setting(8, number=4, since="2.1", least=1)
    """Workers that share one copy; all of them, unless it is set."""
    mp_degree: int = setting(1, number=5, since="2.1", effect=Effect.REFUSED)
    """Tensor parallel degree."""
    dp_degree: int = setting(1, number=6, since="2.1", effect=Effect.REFUSED)
    """Data parallel degree."""
    hybrid_dp: bool = setting(False, number=7, since="2.0")
    """Data parallel between groups (2.0): `sharding_group_size` is less than all workers."""
    gradient_merge_acc_step: int = setting(1, number=8, since="2.1", effect=Effect.REFUSED)
    """Steps to merge: `gradient_merge` does it."""
    optimize_offload: bool = setting(False, number=9, since="2.1", effect=Effect.REFUSED)
    """Optimizer state on the host."""
    pp_allreduce_in_optimize: bool = setting(False, number=10, since="2.2", effect=Effect.REFUSED)
    """All-reduce in the update."""
    pp_degree: int = setting(1, number=11, since="2.1", effect=Effect.REFUSED)
    """Pipeline degree."""
    optimize_cast: bool = setting(False, number=12, since="2.2", effect=Effect.REFUSED)
    """Cast in the update."""
    _dp_as_optimizer_sharding: bool = setting(False, number=13, since="2.2", effect=Effect.REFUSED)
    """Shard the update only: stage 1 does it."""
    stage: int = setting(1, number=14, since="2.3", least=1)
    """What is divided: 1 optimizer state, 2 gradients too, 3 parameters too."""
    enable_tuning: bool = setting(False, number=15, since="2.3", effect=Effect.REFUSED)
    """Let the planner choose."""
    use_calc_stream: bool = setting(False, number=16, since="2.4", effect=Effect.REFUSED)
    """Communicate on the stream of compute."""
    fuse_broadcast_MB: float = setting(32.0, number=1001, since="2.0", above=0)
    """`segment_broadcast_MB` of 2.0, if it is set."""
    sharding_group_size: int = setting(8, number=1002, since="2.0", least=1)
    """`sharding_degree` of 2.0."""


_WAYS = {
    "mp_degree": "set hybrid_configs = {'mp_degree': ...} instead",
    "dp_degree": "set sharding_configs['sharding_degree'], and copies take the other workers",
    "pp_degree": "set hybrid_configs = {'pp_degree': ...} instead",
    "gradient_merge_acc_step": "set strategy.gradient_merge = True with its k_steps instead",
    "optimize_offload": "set it to False; stage 3 divides the state further",
    "_dp_as_optimizer_sharding": "set sharding_configs['stage'] to 1, which does that",
}


@register
class Sharding(DividingTechnique[Config]):
    """Shard optimizer state, gradients and parameters across workers."""

    name = "sharding"
    axis = "sharding"
    since, numbers = "2.0", (26, 111)
    replaces = frozenset({Stage.UPDATE})
    relocates = frozenset({Stage.UPDATE})

    _averages_copies = True  # no other technique acts between copies
    _divided: DividedParameters | None = None
    _program: ShardedProgram | None = None

    # -- checks ---------------------------------------------------------------------------
    def check(self) -> None:
        """Refuse settings that cannot act."""
        config, stage = self.config, self.config.stage
        for field in rows_of(Config):
            value = getattr(config, field.name)
            if field.effect is Effect.REFUSED and value != field.default:
                way = _WAYS.get(field.name, f"set it to {field.default!r}")
                raise ValueError(
                    f"sharding_configs[{field.name!r}] is {value!r}, which FleetX cannot do: {way}."
                )
        if stage not in (1, 2, 3):
            raise ValueError(f"sharding_configs['stage'] must be 1, 2 or 3, not {stage}.")
        super().check()
        if stage == 3:
            self.check_torch("sharding with stage 3", "set sharding_configs['stage'] to 2")
        by_anchors = config.sharding_segment_strategy == "segment_anchors"
        if bool(config.segment_anchors) != by_anchors or (by_anchors and stage < 3):
            raise ValueError(
                "sharding_configs['segment_anchors'] names the modules that stage 3 gathers one at "
                "a time: set it together with 'sharding_segment_strategy': 'segment_anchors' and "
                "'stage': 3, or leave both out."
            )
        if stage > 1 and (self.job.all_reduce.group_size or self.job.all_reduce.communicators > 1):
            raise ValueError(
                f"sharding with stage {stage} exchanges gradients without all-reduces, which "
                "use_hierarchical_allreduce and nccl_comm_num are about: leave them out, or set "
                "sharding_configs['stage'] to 1."
            )
        self._check_workers()

    def _check_workers(self) -> None:
        degrees = self.job.layout.degrees
        if self.config.hybrid_dp and self.job.workers > 1 and degrees.dp == 1:
            raise ValueError(
                "sharding_configs['hybrid_dp'] is True, but one copy of the model is divided "
                f"between all {self.job.workers} workers: set sharding_configs['sharding_degree'] "
                "to a smaller divisor of that, or 'hybrid_dp' to False."
            )
        if self.config.stage < 3 and degrees.mp > 1:
            raise ValueError(
                f"the strategy switches on sharding with stage {self.config.stage} and "
                "tensor_parallel, but whole layers have owners in that stage: set "
                "sharding_configs['stage'] to 3, or switch off one of them."
            )

    def _is_set(self, key: str) -> bool:
        return key in getattr(self.job.strategy.sharding_configs, "given", ())

    # -- the step -------------------------------------------------------------------------
    def change_step(self, step: TrainStep) -> None:
        """Let each worker update a part of the parameters."""
        step.count_activations()
        if self.config.stage > 1:
            what = f"sharding with stage {self.config.stage}"
            self.share_clip(step, what, "set sharding_configs['stage'] to 1, or ")
        self._check_exchange(step)
        if self.config.stage == 3:
            self._divide_parameters(step)
        else:
            self._choose_owners(step)

    def _check_exchange(self, step: TrainStep) -> None:
        """Refuse what a technique between copies cannot follow."""
        exchange, precision = step.owner("grad_sync"), step.precision
        scales = isinstance(precision, MixedPrecision) and precision.config.scales
        if exchange is None:
            return
        self._averages_copies = False
        if scales:
            raise ValueError(
                f"the strategy switches on amp with a loss scale, sharding and {exchange.name}, "
                "but workers of one copy must agree on an overflow in every step, and copies do "
                "not wait for each other: set amp_configs = {'dtype': 'bfloat16'}, which needs no "
                "scale."
            )
        if self.config.stage == 3:
            check_parts(exchange, "sharding with stage 3", "set sharding_configs['stage'] to 2")

    def _divide_parameters(self, step: TrainStep) -> None:
        self.check_loss_scale(
            step,
            "sharding with stage 3",
            "but gradients of divided parameters cannot be divided by the scale",
            ", or sharding_configs['stage'] to 2",
        )
        between = step.owner("grad_sync") is not None
        divided = self._divided = DividedParameters(
            self.config.segment_anchors,
            self.job.all_reduce.dtype,
            self.job.layout,
            averages_copies=not between,
        )
        # Nobody owns a parameter: buffers are all that is sent.
        nobody = Owners(self.job.layout.group("sharding"))
        sync: ParameterSync = SentByOwners(nobody, limit_mb=self._limit_mb(), sends_buffers=True)
        own = OwnParts()
        step.grad_sync = InsideFirst(divided, step.grad_sync, own) if between else divided
        step.updater = DividedUpdate()
        step.param_sync = BetweenFirst(step.param_sync, sync, own) if between else sync

        def distribute(model: nn.Module) -> None:
            stage = step.stage_state
            divided.distribute(model, [model] if stage is None else stage.roots)

        step.placers.append(distribute)

    def _choose_owners(self, step: TrainStep) -> None:
        owners = Owners(self.job.layout.group("sharding"))
        update = OwnersUpdate(owners)
        limit = self._limit_mb()
        sync = SentByOwners(owners, limit_mb=limit, sends_buffers=self.config.stage > 1)
        reduced: ReducedToOwners | None = None
        if self.config.stage > 1:
            reduced = ReducedToOwners(
                owners,
                limit_mb=limit,
                dtype=self.job.all_reduce.dtype,
                scale=lambda: step.precision.message_scale(),
                # Nor does a pipeline send the gradients of each micro-batch by themselves.
                is_outermost=lambda sync: step.grad_sync is outermost and step.batches is None,
            )
        outermost = self._exchange_gradients(step, owners, reduced)

        def prepare(parameters: dict[str, Tensor]) -> None:
            owners.take(parameters)
            update.watch(step.update, parameters)
            sync.watch(parameters)
            if reduced is not None:
                reduced.watch(parameters)

        step.updater = update
        between = step.owner("param_sync") is not None
        step.param_sync = BetweenFirst(step.param_sync, sync, owners.own) if between else sync
        step.when_named.append(prepare)

    def _exchange_gradients(
        self, step: TrainStep, owners: Owners, reduced: ReducedToOwners | None
    ) -> GradientSync:
        """Exchange inside the group, and between copies; return the stage that does it."""
        scale = step.precision.message_scale
        if step.owner("grad_sync") is not None:
            inside = reduced or AfterBackward(self.job.exchange("sharding"), scale)
            step.grad_sync = InsideFirst(inside, step.grad_sync, owners.own)
        elif reduced is not None and self.job.copies > 1:
            between = AfterBackward(self.job.exchange(), scale)
            step.grad_sync = InsideFirst(reduced, between, owners.own)
        elif reduced is not None:
            step.grad_sync = reduced
        return step.grad_sync

    def change_update(self, step: TrainStep, optimizer: Optimizer) -> Optimizer:
        """Note the optimizer, on which the size of its state depends, and give it the parts."""
        if self._divided is not None:
            way = "set sharding_configs['stage'] to 2"
            self.check_whole_layers(optimizer, "sharding with stage 3", way)
        return super().change_update(step, optimizer)

    def change_program(self, step: ProgramStep) -> None:
        """Write the updates of a part of the parameters."""
        check_program(step, self.config.stage)
        if self.job.copies > 1:
            raise ValueError(
                f"sharding of {self.job.layout.degrees.sharding} workers leaves {self.job.copies} "
                "copies of the model, which FleetX can do for modules but not for programs: leave "
                "sharding_configs['sharding_degree'] out, so that all workers share one."
            )
        workers = self.job.workers
        self._program = step.param_sync = ShardedProgram(self.job.rank, workers, self.config.stage)

    def _limit_mb(self) -> float:
        is_old = self._is_set("fuse_broadcast_MB") and not self._is_set("segment_broadcast_MB")
        return self.config.fuse_broadcast_MB if is_old else self.config.segment_broadcast_MB

    # -- explaining -----------------------------------------------------------------------
    def rows(self, sizes: Sizes) -> list[Row]:
        """Return what each stage holds, sends and saves on this worker."""
        blocks = 0 if self._divided is None else self._divided.block_elements
        costs = ShardingCosts(
            self.job, sizes, self.config.stage, blocks, averages_copies=self._averages_copies
        )
        program = self._program
        copies = state_copies(self._optimizer) if program is None else program.state_copies
        return costs.rows(self.name, copies)
