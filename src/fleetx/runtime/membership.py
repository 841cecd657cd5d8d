"""This process's place in its job, for layers below `fleetx.fleet`.

`fleetx.fleet` knows it after `fleet.init`, from a role maker that may be the script's own. It
registers a function here, so that a data set or a download need not import upper layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Member(Protocol):
    """A process of a job, such as a role maker."""

    def worker_index(self) -> int:
        """Return the rank of this worker."""

    def worker_num(self) -> int:
        """Return the number of workers."""

    def local_rank(self) -> int:
        """Return the rank of this worker on its machine."""

    def is_worker(self) -> bool:
        """Return whether this process trains."""

    def is_server(self) -> bool:
        """Return whether this process is a parameter server."""


def _nowhere() -> Member | None:
    return None


_find: Callable[[], Member | None] = _nowhere


def found_by(find: Callable[[], Member | None]) -> None:
    """Register the function that `own` calls; it returns None before the job is joined."""
    global _find
    _find = find


def own() -> Member | None:
    """Return this process's place in its job; None if it has not joined one."""
    return _find()
