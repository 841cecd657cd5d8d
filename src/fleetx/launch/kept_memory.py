"""Memory of the launcher that holds the newest state of workers for their restarts.

It consists of anonymous files (memfd), two per worker: the newest state, and the one being written.
They exist as long as a process has them open, so that nothing remains however the job ends, and
only the job's user can open them (through /proc).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from fleetx.launch.group import ProcessSpec
from fleetx.runtime.environment import STATE_MEMORY

_PER_WORKER = 2


class KeptMemory:
    """The anonymous files of all workers of this machine, kept from one attempt to the next."""

    def __init__(self) -> None:
        self._files: list[int] = []

    def lend(self, specs: Sequence[ProcessSpec]) -> list[ProcessSpec]:
        """Return the processes with the paths of these files in their environment, own ones first.

        Servers have a state of their own, and get none.
        """
        count = _PER_WORKER * sum(spec.role != "server" for spec in specs)
        while len(self._files) < count:
            self._files.append(os.memfd_create("fleetx-state"))
        paths = [f"/proc/{os.getpid()}/fd/{file}" for file in self._files]
        changed, first = [], 0
        for spec in specs:
            if spec.role == "server":
                changed.append(spec)
                continue
            own = paths[first : first + _PER_WORKER]
            listed = ":".join([*own, *(path for path in paths if path not in own)])
            changed.append(replace(spec, environment={**spec.environment, STATE_MEMORY: listed}))
            first += _PER_WORKER
        return changed
