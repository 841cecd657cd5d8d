"""What a process is among those of its machine."""

from __future__ import annotations

from fleetx.runtime import membership
from fleetx.runtime.worker_environment import detect


def is_first_worker() -> bool:
    """Tell whether this is the first worker of its machine, as fleet or else the launcher says."""
    place = membership.own()
    if place is not None:
        return place.is_worker() and place.local_rank() == 0
    return detect().local_rank == 0
