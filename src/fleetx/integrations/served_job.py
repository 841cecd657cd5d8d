"""Parameter servers under another library's loop: `fleetrun --server_num 1 --worker_num 2 script`.

Every process runs the script. In a server the adapter serves where a worker would attach to the
library, and ends the process when the workers have finished; a worker joins the servers once, and
leaves them when its process ends, as the library's loop has no place for it.
"""

from __future__ import annotations

import atexit
import sys
from typing import Any, NoReturn

from fleetx import fleet
from fleetx.runtime.role_environment import detect_server_job

_joined: list[Any] = []  # the strategy by which this process has joined its servers


def has_servers() -> bool:
    """Return whether this process belongs to a job with parameter servers."""
    return detect_server_job() is not None


def serve_if_server(strategy: Any) -> None:
    """In a server, serve until the workers have finished, and end the process."""
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
            f"the library counts this process as worker {rank} of {workers}, but in the job with "
            f"parameter servers it is worker {place.index} of {place.worker_num}: tell the library "
            "of as many workers as fleetrun --worker_num starts."
        )
    if not _joined:
        fleet.init(strategy=strategy)
        fleet.init_worker()
        _joined.append(strategy)
        atexit.register(_leave)
    elif _joined[0] is not strategy:
        raise RuntimeError(
            "this process has joined its parameter servers with another strategy: a job with "
            "servers trains one model; start a job for each."
        )


def _leave() -> None:
    if not hasattr(sys, "last_value"):  # after an error the launcher ends the job
        fleet.stop_worker()
