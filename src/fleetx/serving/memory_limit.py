"""A memory limit for the process of a server, so that no request can exhaust the machine.

The limit is set after the model has been loaded: batches are computed one at a time, so the
remainder is what one batch may allocate. An allocation beyond it fails, and with it the request;
the server continues. It covers memory of the CPU (RLIMIT_DATA), not of a GPU.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

LEAST_ROOM = 256 << 20
"""The memory for a batch on a machine with little free memory."""
_CGROUP = Path("/sys/fs/cgroup")


def limit_memory(limit: int | None) -> int | None:
    """Limit the memory of this process and return the limit in bytes; None if there is none.

    `limit` is the limit of the whole process in bytes, 0 for none. None takes the current
    memory of the process plus half of the free memory of the machine or control group; there is no
    limit on systems without /proc.
    """
    if limit is None:
        used = _used()
        limit = 0 if used is None else used + max(free_memory() // 2, LEAST_ROOM)
    if limit == 0:
        return None
    highest = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if highest != resource.RLIM_INFINITY:
        limit = min(limit, highest)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, highest))
    return limit


def free_memory() -> int:
    """Return the bytes that processes can still allocate, on the machine or in the control group.

    Caches of files do not count as used.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) << 10
        most = int((_CGROUP / "memory.max").read_text())
        free = min(free, most - int((_CGROUP / "memory.current").read_text()))
    except (OSError, KeyError, ValueError):
        pass  # no control group, or one without a limit
    return max(free, 0)


def _used() -> int | None:
    """Return the bytes that count towards RLIMIT_DATA; None if the system does not report them."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    return None
