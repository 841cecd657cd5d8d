"""The parts of fleet: roles, strategy, helpers, the session."""

from paddle.distributed.fleet.base import (
    distributed_strategy,
    fleet_base,
    role_maker,
    util_factory,
)
