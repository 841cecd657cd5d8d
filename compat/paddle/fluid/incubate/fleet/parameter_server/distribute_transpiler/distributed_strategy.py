"""The four strategies of server jobs and their runtime configurations."""

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
)
from fleetx.paddle_rules.server_strategy import ServerStrategy as DistributedStrategy

__all__ = [
    "AsyncStrategy",
    "DistributedStrategy",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "StrategyFactory",
    "SyncStrategy",
    "TrainerRuntimeConfig",
]
