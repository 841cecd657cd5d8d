"""The strategies of Paddle 1.x for server jobs, and their configurations.

A strategy has five parts that a script may set, as objects or as dicts. Training uses
`server_mode()`, which is derived from those with an effect (the mode, slicing, queues and merging).
"""

from __future__ import annotations

import copy
from typing import Any

from fleetx.paddle_rules.server_config import (
    DistributedMode,
    DistributeTranspilerConfig,
    RoundRobin,
    ServerRuntimeConfig,
    TrainerRuntimeConfig,
)
from fleetx.ps.modes.async_mode import AsyncSettings
from fleetx.ps.modes.server_mode import ServerMode
from fleetx.runtime import environment
from fleetx.static.run.compiled_program import BuildStrategy, ExecutionStrategy


class ServerStrategy:
    """Base of the four strategies; created by `StrategyFactory`."""

    _mode: int | None = None

    def __init__(self) -> None:
        self._program_config = DistributeTranspilerConfig()
        self._trainer_runtime_config = TrainerRuntimeConfig()
        self._server_runtime_config = ServerRuntimeConfig()
        self._execute_strategy = ExecutionStrategy()
        self._build_strategy = BuildStrategy()
        threads = environment.cpu_num()
        self._execute_strategy.num_threads = threads
        if threads > 1:
            self._build_strategy.reduce_strategy = BuildStrategy.ReduceStrategy.Reduce
        self.debug_opt: Any = None
        if self._mode is not None:
            for check in _CHECKS:
                getattr(self, check)()

    # -- the parts ----------------------------------------------------------------------
    def get_program_config(self) -> DistributeTranspilerConfig:
        """Return how the program is divided."""
        return self._program_config

    def set_program_config(self, config: Any) -> None:
        """Set how the program is divided."""
        self._program_config = _taken(
            "program_config", self._program_config, DistributeTranspilerConfig, config
        )
        self.check_program_config()

    def get_trainer_runtime_config(self) -> TrainerRuntimeConfig:
        """Return how workers queue, merge and fetch."""
        return self._trainer_runtime_config

    def set_trainer_runtime_config(self, config: Any) -> None:
        """Set how workers queue, merge and fetch."""
        if isinstance(config, dict):
            known = self._trainer_runtime_config.runtime_configs
            unknown = [key for key in config if key not in known]
            if unknown:
                raise ValueError(f"TrainerRuntimeConfig has no setting {unknown[0]!r}.")
            known.update(config)
        else:
            self._trainer_runtime_config = _taken(
                "trainer_runtime_config", None, TrainerRuntimeConfig, config
            )
        self.check_trainer_runtime_config()

    def get_server_runtime_config(self) -> ServerRuntimeConfig:
        """Return the servers' settings."""
        return self._server_runtime_config

    def set_server_runtime_config(self, config: Any) -> None:
        """Set the servers' settings."""
        self._server_runtime_config = _taken(
            "server_runtime_config", self._server_runtime_config, ServerRuntimeConfig, config
        )
        self.check_server_runtime_config()

    def get_execute_strategy(self) -> ExecutionStrategy:
        """Return how a worker runs its program."""
        return self._execute_strategy

    def set_execute_strategy(self, config: Any) -> None:
        """Set how a worker runs its program."""
        self._execute_strategy = _taken(
            "execute_strategy", self._execute_strategy, ExecutionStrategy, config
        )
        self.check_execute_strategy()

    def get_build_strategy(self) -> BuildStrategy:
        """Return how a worker's program is built."""
        return self._build_strategy

    def set_build_strategy(self, config: Any) -> None:
        """Set how a worker's program is built."""
        self._build_strategy = _taken("build_strategy", self._build_strategy, BuildStrategy, config)
        self.check_build_strategy()

    def set_debug_opt(self, opt_info: Any) -> None:
        """Set what `train_from_dataset` writes out: dump_* settings in a dict."""
        self.debug_opt = opt_info

    def get_debug_opt(self) -> dict[str, Any]:
        """Return what `train_from_dataset` writes out; nothing if nothing was set."""
        given = self.debug_opt
        if not isinstance(given, dict):
            return {}
        return {
            "dump_slot": bool(given.get("dump_slot", 0)),
            "dump_converter": str(given.get("dump_converter", "")),
            "dump_fields": given.get("dump_fields", []),
            "dump_file_num": given.get("dump_file_num", 16),
            "dump_fields_path": given.get("dump_fields_path", ""),
            "dump_param": given.get("dump_param", []),
        }

    # -- what a mode settles ------------------------------------------------------------
    def check_program_config(self) -> None:
        """Set what the mode determines about the program."""
        self._require_mode("check_program_config")
        self._program_config.sync_mode = False
        self._program_config.runtime_split_send_recv = True

    def check_trainer_runtime_config(self) -> None:
        """Set what the mode determines about workers."""
        self._require_mode("check_trainer_runtime_config")
        self._trainer_runtime_config.mode = self._mode

    def check_server_runtime_config(self) -> None:
        """Set what the mode determines about servers: nothing."""
        self._require_mode("check_server_runtime_config")

    def check_execute_strategy(self) -> None:
        """Synchronize a worker's threads, if the mode does."""
        self._require_mode("check_execute_strategy")
        if self._mode in (DistributedMode.SYNC, DistributedMode.HALF_ASYNC):
            self._execute_strategy.use_thread_barrier = True

    def check_build_strategy(self) -> None:
        """Set what the mode determines about building."""
        self._require_mode("check_build_strategy")
        self._build_strategy.async_mode = True

    def _require_mode(self, check: str) -> None:
        if self._mode is None:
            raise NotImplementedError(
                f"{type(self).__name__} does not define {check}(): create strategies with "
                "StrategyFactory."
            )

    # -- what training follows ----------------------------------------------------------
    def server_mode(self) -> ServerMode:
        """Return what training follows."""
        self._require_mode("server_mode")
        config, runtime = self._program_config, self._trainer_runtime_config
        config.check()
        kinds = {
            DistributedMode.SYNC: "sync",
            DistributedMode.ASYNC: "async",
            DistributedMode.HALF_ASYNC: "half_async",
            DistributedMode.GEO: "geo",
        }
        assert self._mode is not None
        return ServerMode(
            kind=kinds[self._mode],
            k_steps=config.geo_sgd_need_push_nums,
            threads=environment.cpu_num(),
            settings=AsyncSettings(
                max_merge_var_num=runtime.number("max_merge_var_num"),
                send_queue_size=runtime.number("send_queue_size"),
                send_wait_times=runtime.number("send_wait_times"),
                independent_recv_thread=bool(runtime.number("independent_recv_thread")),
                min_send_grad_num_before_recv=runtime.number("min_send_grad_num_before_recv"),
            ),
            slice_var_up=config.slice_var_up,
            min_block_size=config.min_block_size,
            split_method=(config.split_method or RoundRobin).__name__,
        )


_CHECKS = (
    "check_program_config",
    "check_trainer_runtime_config",
    "check_server_runtime_config",
    "check_build_strategy",
    "check_execute_strategy",
)


def _taken(name: str, current: Any, kind: type[Any], given: Any) -> Any:
    """Return the new value of a part: an object unchanged, a dict as changes to the current one."""
    if isinstance(given, kind):
        return given
    if not isinstance(given, dict):
        raise TypeError(f"{name} takes a dict or a {kind.__name__}, not {type(given).__name__}.")
    unknown = [key for key in given if not hasattr(current, key)]
    if unknown:
        raise ValueError(f"{kind.__name__} has no setting {unknown[0]!r}.")
    for key, value in given.items():
        setattr(current, key, value)
    return current


class SyncStrategy(ServerStrategy):
    """Every step waits for all workers."""

    _mode = DistributedMode.SYNC

    def check_program_config(self) -> None:
        """Set what the mode determines about the program."""
        super().check_program_config()
        self._program_config.half_async = True
        self._program_config.completely_not_async = True


class AsyncStrategy(ServerStrategy):
    """No worker waits for another."""

    _mode = DistributedMode.ASYNC


class HalfAsyncStrategy(ServerStrategy):
    """A worker's threads are synchronized, workers are not."""

    _mode = DistributedMode.HALF_ASYNC

    def check_program_config(self) -> None:
        """Set what the mode determines about the program."""
        super().check_program_config()
        self._program_config.half_async = True


class GeoStrategy(ServerStrategy):
    """Workers update locally and exchange differences every `update_frequency` steps."""

    _mode = DistributedMode.GEO

    def __init__(self, update_frequency: int = 100) -> None:
        super().__init__()
        self._program_config.geo_sgd_need_push_nums = update_frequency

    def check_program_config(self) -> None:
        """Set what the mode determines about the program."""
        super().check_program_config()
        self._program_config.geo_sgd_mode = True


class StrategyFactory:
    """Makes strategies."""

    @staticmethod
    def create_sync_strategy() -> SyncStrategy:
        """Return a strategy whose steps wait for all workers."""
        return SyncStrategy()

    @staticmethod
    def create_half_async_strategy() -> HalfAsyncStrategy:
        """Return a strategy that synchronizes only a worker's threads."""
        return HalfAsyncStrategy()

    @staticmethod
    def create_async_strategy() -> AsyncStrategy:
        """Return a strategy for asynchronous training."""
        return AsyncStrategy()

    @staticmethod
    def create_geo_strategy(update_frequency: int = 100) -> GeoStrategy:
        """Return a strategy that exchanges differences every `update_frequency` steps."""
        return GeoStrategy(update_frequency)


def strategy_of(config: Any) -> ServerStrategy:
    """Return the strategy of a configuration; a strategy is returned unchanged."""
    if isinstance(config, ServerStrategy):
        return config
    if not isinstance(config, DistributeTranspilerConfig):
        raise TypeError(
            "config must be an instance of DistributeTranspilerConfig, SyncStrategy, "
            f"HalfAsyncStrategy, AsyncStrategy or GeoStrategy, not {type(config).__name__}."
        )
    strategy: ServerStrategy
    if config.sync_mode:
        strategy = SyncStrategy()
    elif config.runtime_split_send_recv and config.geo_sgd_mode:
        strategy = GeoStrategy(config.geo_sgd_need_push_nums)
    elif config.runtime_split_send_recv and not config.half_async:
        strategy = AsyncStrategy()
    else:
        strategy = HalfAsyncStrategy()
    # A copy: the settings made by the strategy would select another one the next time.
    strategy.set_program_config(copy.copy(config))
    return strategy
