"""This process's place in its job, for the layers below the one that knows it.

`fleetx.fleet` knows after `fleet.init`, by a role maker that may be the script's own. It says here
whom to ask, so that a data set or a download need not look upwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Member(Protocol):
    """A process of a job; role makers are such."""

    def worker_index(self) -> int:
        """Return this worker's number, from 0."""

    def worker_num(self) -> int:
        """Return the number of workers."""

    def local_rank(self) -> int:
        """Return this worker's number on its machine."""

    def is_worker(self) -> bool:
        """Tell whether this process trains."""

    def is_server(self) -> bool:
        """Tell whether this process holds parameters for workers."""


def _nowhere() -> Member | None:
    return None


_find: Callable[[], Member | None] = _nowhere


def found_by(find: Callable[[], Member | None]) -> None:
    """Let `own` ask this function, which returns None before the job is joined."""
    global _find
    _find = find


def own() -> Member | None:
    """Return this process's place in the job it has joined; None if it has joined none."""
    return _find()
