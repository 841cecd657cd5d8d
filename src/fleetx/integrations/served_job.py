"""Parameter servers under another library's loop: `fleetrun --server_num 1 --worker_num 2 script`.

Every process runs the script. A server process serves where a worker would attach to the library,
and exits when the workers have finished; a worker connects to the servers once, and disconnects at
exit, since the library's loop has no hook for it.
"""

from __future__ import annotations

import atexit
import sys
from typing import Any, NoReturn

from fleetx import fleet
from fleetx.runtime.role_environment import detect_server_job

_joined: list[Any] = []  # the strategy with which this process has connected to its servers


def has_servers() -> bool:
    """Return whether this process belongs to a job with parameter servers."""
    return detect_server_job() is not None


def serve_if_server(strategy: Any) -> None:
    """In a server, serve until the workers have finished, and exit."""
    place = detect_server_job()
    if place is not None and place.role == "PSERVER":
        _serve(strategy)


def _serve(strategy: Any) -> NoReturn:
    fleet.init(strategy=strategy)
    fleet.init_server()
    fleet.run_server()
    raise SystemExit(0)


def join_servers(strategy: Any, rank: int, workers: int) -> None:
    """Connect a worker to its servers; a process does so once."""
    place = detect_server_job()
    assert place is not None
    if (place.index, place.worker_num) != (rank, workers):
        raise RuntimeError(
            f"for the library this process is worker {rank} of {workers}, but in the job with "
            f"parameter servers it is worker {place.index} of {place.worker_num}: configure the "
            "library for as many workers as fleetrun --worker_num starts."
        )
    if not _joined:
        fleet.init(strategy=strategy)
        fleet.init_worker()
        _joined.append(strategy)
        atexit.register(_leave)
    elif _joined[0] is not strategy:
        raise RuntimeError(
            "this process is connected to its parameter servers with another strategy: a job with "
            "servers trains one model; start a job for each."
        )


def _leave() -> None:
    if not hasattr(sys, "last_value"):  # after an error the launcher stops the job
        fleet.stop_worker()
