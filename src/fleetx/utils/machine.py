"""What a process is among those of its machine."""

from __future__ import annotations

import sys

from fleetx.launch.worker_environment import detect


def is_first_worker() -> bool:
    """Tell whether this is the first worker of its machine, as fleet or else the launcher says."""
    module = sys.modules.get("fleetx.fleet")
    if module is not None and module.fleet._role_maker is not None:
        return module.is_worker() and module.local_rank() == 0
    return detect().local_rank == 0
