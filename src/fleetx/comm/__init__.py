"""Communication between workers, on torch.distributed."""

from fleetx.comm.world import (
    all_gather,
    all_reduce,
    backend_for,
    barrier,
    broadcast,
    connect,
    disconnect,
    is_connected,
    rank,
    ring,
    world_size,
)

__all__ = [
    "all_gather",
    "all_reduce",
    "backend_for",
    "barrier",
    "broadcast",
    "connect",
    "disconnect",
    "is_connected",
    "rank",
    "ring",
    "world_size",
]
