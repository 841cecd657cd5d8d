"""Training with parameter servers in the API of Paddle 1.x; `fleet` is the session."""

import os
from typing import Any

from fleetx.paddle_rules.server_config import (
    DistributedMode,
    DistributeTranspilerConfig,
    ServerRuntimeConfig,
    TrainerRuntimeConfig,
)
from fleetx.paddle_rules.server_strategy import (
    AsyncStrategy,
    GeoStrategy,
    HalfAsyncStrategy,
    StrategyFactory,
    SyncStrategy,
    strategy_of,
)
from fleetx.paddle_rules.server_strategy import ServerStrategy as DistributedStrategy
from fleetx.static.optimizer import Optimizer
from fleetx.static.run.compiled_program import CompiledProgram
from fleetx.static.run.executor import Executor
from paddle.fluid.incubate.fleet.base.fleet_base import (
    DistributedOptimizer,
    Mode,
    PassingOptimizer,
    SessionFleet,
)
from paddle.fluid.incubate.fleet.base.role_maker import (
    MPISymetricRoleMaker,
    default_role_maker,
)
from paddle.fluid.parallel_executor import ParallelExecutor

__all__ = [
    "AsyncStrategy",
    "DistributeTranspilerConfig",
    "DistributedMode",
    "DistributedOptimizer",
    "DistributedStrategy",
    "DistributedTranspiler",
    "FleetTranspiler",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "MPISymetricRoleMaker",
    "ParameterServerOptimizer",
    "ServerRuntimeConfig",
    "StrategyFactory",
    "SyncStrategy",
    "TrainerRuntimeConfig",
    "TranspilerOptimizer",
    "fleet",
]


class DistributedTranspiler(SessionFleet):
    """One process's view of a job with parameter servers."""

    def __init__(self) -> None:
        super().__init__(Mode.TRANSPILER)

    def _begin(self) -> None:
        super()._begin()
        self._transpile_config: DistributedStrategy | None = None
        self._opt_info: Any = None

    def init(self, role_maker: Any = None) -> None:
        """Determine the role of this process; without a role maker, by MPI."""
        role_maker = default_role_maker() if role_maker is None else role_maker
        super().init(role_maker)
        self._session.init(role_maker)

    def init_worker(self) -> None:
        """Print the worker's settings and connect to the servers, now if `wait_port` is set."""
        config = self._transpile_config
        if config is not None:
            print(config.get_trainer_runtime_config())
        at_once = config is None or config.get_program_config().wait_port
        self._session.init_worker(at_once=at_once)

    def run_worker(self, main_programs: Any = None, scopes: Any = None) -> None:
        """Do nothing: a worker runs `fleet.main_program`."""

    def init_server(self, model_dir: str | None = None) -> None:
        """Prepare a server, with the parameters saved in a folder if given."""
        self._require(self.startup_program, "startup_program")
        if model_dir and not os.path.isdir(model_dir):
            raise ValueError(f"there is no folder {model_dir!r}.")
        super().init_server(model_dir or None)

    def run_server(self) -> None:
        """Serve until all workers have finished."""
        self._require(self.main_program, "main_program")
        super().run_server()

    @staticmethod
    def _require(program: Any, name: str) -> None:
        if program is None:
            raise ValueError(f"{name} is None: call minimize of the distributed optimizer first.")

    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> Any:
        """Return an optimizer whose minimize divides the program between workers and servers."""
        if not isinstance(optimizer, Optimizer):
            raise ValueError("optimizer must be an Optimizer.")
        if not self._is_initialized:
            raise ValueError("call fleet.init(role) before fleet.distributed_optimizer.")
        self._optimizer = TranspilerOptimizer(optimizer, strategy)
        return self._optimizer

    def save_persistables(self, executor: Any, dirname: str, main_program: Any = None) -> None:
        """Write the parameters that the servers hold."""
        self._check_saving("save_persistables", executor, main_program)
        if main_program is not None and main_program.binding.servers is None:
            raise ValueError(
                "main_program is not the program of a server job: use io.save_persistables."
            )
        self._session.save_persistables(executor, dirname, main_program)

    @staticmethod
    def _check_saving(function: str, executor: Any, main_program: Any) -> None:
        where = f"in fleet.{function}() function"
        if isinstance(executor, ParallelExecutor) or not isinstance(executor, Executor):
            raise TypeError(
                f"{where}, executor must be an Executor, not {type(executor).__name__}."
            )
        if isinstance(main_program, CompiledProgram):
            raise TypeError(f"{where}, main_program must be a Program, not a CompiledProgram.")

    def _transpile(self, config: Any) -> None:
        self._transpile_config = strategy_of(config)

    def _set_opt_info(self, opt_info: Any) -> None:
        self._opt_info = opt_info


fleet = DistributedTranspiler()


class TranspilerOptimizer(PassingOptimizer):
    """An optimizer of programs that trains with the servers of `fleet`."""

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        super().__init__(optimizer, strategy)
        if strategy is None:
            strategy = StrategyFactory.create_sync_strategy()
        if not isinstance(strategy, DistributeTranspilerConfig | DistributedStrategy):
            raise TypeError(
                f"In {fleet._mode} mode, strategy must be an instance of "
                "DistributeTranspilerConfig, SyncStrategy, HalfAsyncStrategy, AsyncStrategy, or "
                f"GeoStrategy, not {type(strategy).__name__}"
            )
        self._strategy = strategy
        self.opt_info: dict[str, Any] = {}
        if isinstance(strategy, DistributedStrategy):
            self.opt_info = {
                **strategy.get_debug_opt(),
                "mpi_rank": fleet.worker_index(),
                "mpi_size": fleet.worker_num(),
                "trainer": "MultiTrainer",
                "device_worker": "Hogwild",
            }
            fleet._set_opt_info(self.opt_info)

    def minimize(
        self,
        loss: Any,
        scopes: Any = None,
        startup_program: Any = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Append backward and updates, and divide the program between workers and servers."""
        for name, given in (("loss", loss), ("program", startup_program)):
            if isinstance(given, list):
                raise TypeError(f"{name} of minimize must not be a list.")
        fleet._transpile(self._strategy)
        inner = fleet._session.distributed_optimizer(self._optimizer, fleet._transpile_config)
        return inner.minimize(loss, startup_program, parameter_list, no_grad_set)


# Their names in Paddle 2.0.
FleetTranspiler = DistributedTranspiler
ParameterServerOptimizer = TranspilerOptimizer
