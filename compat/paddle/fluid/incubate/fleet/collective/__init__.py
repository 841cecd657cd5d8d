"""Collective training with the API of Paddle 1.x; `fleet` is the session."""

import logging
from typing import Any

from fleetx.fleet.saving import program_checkpoints
from fleetx.paddle_rules import strategy_of_1x as legacy_strategy
from fleetx.static.graph.program import Program
from fleetx.static.mixed_precision import decorate
from fleetx.static.optimizer import RecomputeOptimizer
from fleetx.static.run.compiled_program import CompiledProgram
from fleetx.static.run.executor import Executor
from fleetx.static.run.place import CPUPlace
from paddle.fluid.incubate.fleet.base.fleet_base import Mode, PassingOptimizer, SessionFleet

__all__ = [
    "Collective",
    "CollectiveOpBasedOptimizer",
    "CollectiveOptimizer",
    "DistFCConfig",
    "DistributedStrategy",
    "LambConfig",
    "TrainStatus",
    "fleet",
]


class LambConfig:
    """Has no settings."""


class DistFCConfig:
    """Has no settings."""


class DistributedStrategy(legacy_strategy.LegacyStrategy):
    """Settings of collective training."""


class TrainStatus:
    """The progress of training: the last finished epoch."""

    def __init__(self, epoch_no: int = -1) -> None:
        self._epoch_no = epoch_no

    def next(self) -> int:
        """Return the epoch to continue with."""
        return self._epoch_no + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainStatus) and self._epoch_no == other._epoch_no

    __hash__ = None


class Collective(SessionFleet):
    """One worker's view of a collective training job."""

    def __init__(self) -> None:
        super().__init__(Mode.COLLECTIVE)

    def _begin(self) -> None:
        super()._begin()
        self._compiled: CompiledProgram | None = None

    def init(self, role_maker: Any = None) -> None:
        """Determine the rank of this worker; it connects to the others on first communication."""
        super().init(role_maker)
        self._session.init(role_maker, is_collective=True, wait=False)

    @property
    def main_program(self) -> Any:
        """The training program with communication; None before minimize."""
        return self._compiled or self._session.main_program

    @property
    def _transpiled_program(self) -> Any:
        return self._session.main_program

    def run_worker(self, main_programs: Any = None, scopes: Any = None) -> None:
        """Log a warning: this is for parameter-server jobs."""
        logging.warning("run_worker() is for parameter-server jobs and has no effect.")

    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> Any:
        """Return an optimizer whose minimize writes the communication into the program."""
        self._optimizer = CollectiveOptimizer(optimizer, strategy)
        return self._optimizer

    def save_persistables(
        self, executor: Any, dirname: str, main_program: Any = None, filename: str | None = None
    ) -> None:
        """Write the persistable variables of a program."""
        self._check_saving("save_persistables", executor, main_program)
        self._session.save_persistables(executor, dirname, main_program, filename)

    def save_check_point(
        self,
        executor: Any,
        path: str,
        train_status: TrainStatus,
        main_program: Any = None,
        fs: Any = None,
        local_cache_path: str = ".cache",
        remain_all_checkpoint: bool = True,
    ) -> None:
        """Write a numbered checkpoint of the program and of the progress of training."""
        program_checkpoints.save(
            executor,
            path,
            train_status._epoch_no,
            main_program or self._transpiled_program,
            fs=fs,
            cache=local_cache_path,
            keep_all=remain_all_checkpoint,
        )

    def load_check_point(
        self,
        executor: Any,
        path: str,
        trainer_id: int,
        main_program: Any = None,
        fs: Any = None,
        local_cache_path: str = ".cache",
        ignore_empty: bool = True,
    ) -> TrainStatus | None:
        """Read the last checkpoint; return the progress of training, None if there is none."""
        epoch = program_checkpoints.load(
            executor,
            path,
            main_program or self._transpiled_program,
            fs=fs,
            cache=local_cache_path,
            worker=trainer_id,
        )
        assert ignore_empty or epoch is not None, f"there is no checkpoint in {path}."
        return None if epoch is None else TrainStatus(epoch)

    def clean_redundant_check_points(
        self, root_path: str, fs: Any = None, checkpoint_num: int = 1
    ) -> None:
        """Remove all but the last checkpoints."""
        program_checkpoints.clean(root_path, fs=fs, keep=checkpoint_num)

    @staticmethod
    def _check_saving(function: str, executor: Any, main_program: Any) -> None:
        assert isinstance(executor, Executor), (
            f"executor of fleet.{function}() must be an Executor."
        )
        assert main_program is None or isinstance(main_program, Program), (
            f"main_program of fleet.{function}() must be a Program."
        )


fleet = Collective()


class CollectiveOpBasedOptimizer(PassingOptimizer):
    """Delegates to an optimizer."""

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        assert isinstance(strategy, DistributedStrategy), "strategy must be a DistributedStrategy."
        super().__init__(optimizer, strategy)


class CollectiveOptimizer(PassingOptimizer):
    """An optimizer of programs that trains on all workers of `fleet`."""

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        strategy = DistributedStrategy() if strategy is None else strategy
        legacy_strategy.check_strategy(strategy)
        super().__init__(optimizer, strategy)

    def minimize(
        self,
        loss: Any,
        startup_program: Any = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Append backward, communication and updates; return (update ops, pairs)."""
        strategy = self._strategy
        legacy_strategy.check_optimizer(strategy, self._optimizer)
        if strategy.forward_recompute:
            self._optimizer = RecomputeOptimizer(self._optimizer)
            self._optimizer.set_checkpoints(strategy.recompute_checkpoints)
        if strategy.use_amp:
            self._optimizer = decorate(
                self._optimizer,
                init_loss_scaling=strategy.amp_loss_scaling,
                use_dynamic_loss_scaling=True,
            )
        legacy_strategy.settle_mode(strategy)
        legacy_strategy.settle_communication(strategy, nodes=fleet._session.node_num())
        asked = legacy_strategy.modern(strategy)
        # The optimizer already contains both techniques.
        asked.amp = asked.recompute = False
        inner = fleet._session.distributed_optimizer(self._optimizer, asked)
        result = inner.minimize(loss, startup_program, parameter_list, no_grad_set)
        fleet._compiled = None
        if strategy.mode != "collective":
            fleet._compiled = CompiledProgram(fleet._session.main_program).with_data_parallel(
                loss_name=loss.name,
                places=[CPUPlace()],  # one device per process, whichever it is
                build_strategy=strategy,
                exec_strategy=strategy.exec_strategy,
            )
        return result
