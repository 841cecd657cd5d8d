"""What the launcher tells a process through environment variables.

This is where they are read; the rest of the code asks here.
"""

from __future__ import annotations

import os

from fleetx.launch.place import Place, count, find_place


def place() -> Place:
    """Return which worker of which job this process is, whoever started it."""
    return find_place(os.environ)


def worker_index() -> int:
    """Return the number of this worker, from 0 (0 without a launcher)."""
    return place().rank


def worker_num() -> int:
    """Return how many workers train together (1 without a launcher)."""
    return place().world_size


def cpu_num() -> int:
    """Return how many batches a data-parallel program on the CPU takes per step (CPU_NUM; 1)."""
    return count(os.environ, "CPU_NUM", default=1, least=1)


def heartbeat_file() -> str | None:
    """Return the file in which fleetrun looks for this worker's steps, if it started us."""
    return os.environ.get("FLEETX_HEARTBEAT")
