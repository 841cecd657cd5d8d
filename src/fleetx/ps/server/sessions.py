"""The workers currently connected to a server, and the log of rejected peers."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

from fleetx.ps.wire.messages import Header, Kind, Problem, WireError
from fleetx.ps.wire.shared_payloads import MappedArena, attach

_log = logging.getLogger("fleetx.ps")
_MOST_NOTED = 1000


@dataclasses.dataclass
class Session:
    """A worker's process, since its hello."""

    worker: int
    incarnation: int
    name: str
    route: bytes
    arena: MappedArena | None
    clock: int = -1
    """The last step whose pushes from this worker have all arrived (asynchronous modes)."""


class Sessions:
    """Sessions by worker; a newer process of a worker replaces the older one."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._sessions: dict[int, Session] = {}

    def open(self, header: Header, hello: dict[str, Any], route: bytes) -> tuple[Session, bool]:
        """Admit a worker; return its session and whether its process is new."""
        if header.worker >= self._workers or hello.get("workers") != self._workers:
            raise WireError(
                Problem.BAD_REQUEST,
                f"worker {header.worker} of {hello.get('workers')} came to a server of a job with "
                f"{self._workers} workers",
            )
        before = self._sessions.get(header.worker)
        if before is not None and before.incarnation > header.incarnation:
            raise self._outdated(before)
        arena, why_not = attach(hello.get("shared"))
        name = f"worker {header.worker} (process {hello.get('process')} on {hello.get('host')})"
        if arena is None:
            _log.debug("No shared memory with %s: %s.", name, why_not)
        session = Session(header.worker, header.incarnation, name[:200], route, arena)
        clock = hello.get("clock")
        known = before.clock if before is not None else -1
        session.clock = max(known, clock) if isinstance(clock, int) else known
        self._sessions[header.worker] = session
        return session, before is None or before.incarnation != header.incarnation

    def find(self, header: Header, epoch: int) -> Session:
        """Return the session that a request belongs to."""
        session = self._sessions.get(header.worker)
        if session is not None and session.incarnation > header.incarnation:
            raise self._outdated(session)
        if session is None or session.incarnation != header.incarnation or header.epoch != epoch:
            raise WireError(Problem.NEED_HELLO, "the sender has not said hello yet")
        return session

    def has(self, route: bytes) -> bool:
        """Return whether the peer at this route has said hello."""
        return any(session.route == route for session in self._sessions.values())

    def __iter__(self) -> Any:
        return iter(self._sessions.values())

    def _outdated(self, newer: Session) -> WireError:
        return WireError(
            Problem.OLD_INCARNATION,
            f"worker {newer.worker} has been started again as {newer.name}: its older process must "
            "not continue",
        )


def refuse_given_up(header: Header, last: int) -> None:
    """Reject new changes of a worker that was marked as finished; `last` is its last number.

    The server has finished such a worker with the next of its numbers, so that the worker's own
    next change would be taken for a repeated one. A worker that starts anew creates its tables.
    """
    if header.sequence >= last and header.kind not in (Kind.CREATE, Kind.FINISH):
        raise WireError(
            Problem.FAILED,
            f"the servers have continued without worker {header.worker}, which was missing for "
            "longer than they wait for one (--worker_wait): start it again",
        )


class Refusals:
    """Logger of rejections, each kind once per peer."""

    def __init__(self) -> None:
        self._noted: set[tuple[str, int]] = set()
        self.count = 0

    def note(self, peer: str, error: WireError) -> None:
        """Count a rejection, and log it if it is the first of its kind from this peer."""
        if error.problem in (Problem.NEED_HELLO, Problem.OUT_OF_ORDER):
            return  # normal after a restart or a lost message
        self.count += 1
        key = (peer, int(error.problem))
        if key in self._noted or len(self._noted) >= _MOST_NOTED:
            return
        self._noted.add(key)
        _log.warning("Rejected a message of %s: %s. (Further ones are not logged.)", peer, error)
