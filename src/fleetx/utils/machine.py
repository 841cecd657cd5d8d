"""The role of a process among those of its machine."""

from __future__ import annotations

from fleetx.runtime import membership
from fleetx.runtime.worker_environment import detect


def is_first_worker() -> bool:
    """Return whether this is the first worker of its machine, from fleet or the launcher."""
    place = membership.own()
    if place is not None:
        return place.is_worker() and place.local_rank() == 0
    return detect().local_rank == 0
