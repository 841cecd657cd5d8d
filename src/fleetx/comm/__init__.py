"""Communication between workers, on torch.distributed."""

from fleetx.comm.world import (
    agree_on,
    all_gather,
    all_reduce,
    backend_for,
    barrier,
    broadcast,
    cancel_meeting,
    connect,
    disconnect,
    is_connected,
    meet,
    rank,
    reduce,
    ring,
    world_size,
)
from fleetx.exports import export_imported

export_imported(globals())
