"""Settings of server jobs; programs are divided by `fleet.distributed_optimizer`."""

from fleetx.fleet.legacy_server_config import (
    DistributedMode,
    DistributeTranspilerConfig,
    ServerRuntimeConfig,
)
from paddle._coverage import missing
from paddle.fluid.transpiler.ps_dispatcher import HashName, PSDispatcher, RoundRobin

__all__ = [
    "DistributeTranspilerConfig",
    "DistributedMode",
    "HashName",
    "PSDispatcher",
    "RoundRobin",
    "ServerRuntimeConfig",
]

__getattr__ = missing(__name__)
