"""The supervisor's link to the other machines: `Link`, here for a job on a single machine.

The supervisor reports the state of its own workers and polls for the outcome of the whole job.
`Root` and `Member` (rendezvous) implement the same interface for several machines.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fleetx.launch.devices import Devices
from fleetx.launch.elastic import Elastic
from fleetx.launch.failure import Failure
from fleetx.launch.hang_detection import Idle, hang_of
from fleetx.launch.job_layout import Cluster, Site, alone
from fleetx.launch.launch_errors import LaunchError
from fleetx.launch.silence import LOST_AFTER
from fleetx.runtime import network

# Interrupts a wait with StopRequest if a stop was requested.
Check = Callable[[], None]
# Creates the keys of a job; None if it has none.
MakeKeys = Callable[[], Mapping[str, str] | None]
Note = tuple[int, dict[str, Any]]
"""The index of a machine, and the note it has sent."""
# Unread notes; older ones are dropped.
_MOST_NOTES = 1000


@dataclass(frozen=True)
class Verdict:
    """How an attempt ended: the failure, and whether the workers are restarted."""

    failure: Failure
    again: bool = False
    rejoins: bool = False
    """Whether only this machine restarts, to rejoin an elastic job that continues."""


@dataclass(frozen=True)
class Rules:
    """The rules for giving up and for restarting."""

    rdzv_timeout: float = 300.0
    hang_timeout: float | None = None
    """As in `Options`."""
    max_restart: int = 0
    make_keys: MakeKeys | None = None
    """Creates the keys of a server job."""
    own_keys: Mapping[str, str] | None = field(default=None, repr=False)
    """Keys that this machine has read from a file."""

    secret: bytes = field(default=b"", repr=False)
    """The secret for joining the rendezvous; empty if there is none."""

    lost_after: float = LOST_AFTER
    """Seconds of silence after which a machine with running processes is lost."""

    def keys(self) -> Mapping[str, str] | None:
        """Return the keys of the job; None if it has none."""
        if self.own_keys is not None or self.make_keys is None:
            return self.own_keys
        return self.make_keys()

    def allows_restart(self, failure: Failure, attempt: int) -> bool:
        """Return whether the failed attempt number `attempt` is followed by another."""
        return attempt < self.max_restart and failure.kind in ("exit", "hang")


class Link:
    """The link of a job on a single machine."""

    def __init__(self, site: Site, devices: Devices, rules: Rules) -> None:
        self.site = site
        self.devices = devices
        self.rules = rules
        self.attempt = 0
        self.finished = False
        """Whether the whole job has finished."""
        self.elastic: Elastic | None = None
        """Settings of an elastic job for its processes, after the rendezvous."""
        self._failures: list[Failure] = []
        self._notes: deque[Note] = deque(maxlen=_MOST_NOTES)

    @property
    def is_first(self) -> bool:
        """Whether this is the first machine of the job."""
        return True

    def tell(self, note: dict[str, Any]) -> None:
        """Send a note: the first machine to all others, the others to the first."""

    def notes(self) -> list[Note]:
        """Return the notes of other machines, each once, with the index of the machine."""
        found = list(self._notes)
        self._notes.clear()
        return found

    @property
    def _meeting(self) -> tuple[str, int]:
        """The address of the rendezvous of a job on several machines."""
        assert self.site.meeting is not None
        return self.site.meeting

    def _where(self) -> str:
        return network.join_endpoint(*self._meeting)

    def meet(self, attempt: int, check: Check) -> Cluster:
        """Wait until all machines have joined this attempt, and return the cluster."""
        self.attempt = attempt
        self._failures.clear()
        cluster = alone(self.site, self.devices)
        return replace(cluster, keys=self.rules.keys())

    def own_host(self, deadline: float, check: Check) -> str:
        """Return the address at which other machines reach the first one, which this is."""
        host = self.site.host or network.resolve(self._meeting[0])
        while host is None:
            check()
            if time.monotonic() >= deadline:
                raise LaunchError(f"The name {self._meeting[0]} of --master cannot be resolved.", 1)
            select.select([], [], [], 0.5)
            host = network.resolve(self._meeting[0])
        return host

    def report(self, failure: Failure) -> None:
        """Report a failure on this machine to all machines."""
        self._failures.append(failure)

    def complete(self) -> None:
        """Report that all workers of this machine have succeeded."""
        self.finished = True

    def poll(self, idle: Idle) -> Verdict | None:
        """Return the outcome if the job must stop; `idle`: the progress of this machine's
        workers.
        """
        if not self._failures:
            hang = hang_of([idle], self.rules.hang_timeout, self.site.host or "")
            if hang is None:
                return None
            self._failures.append(hang)
        failure = self._failures[0]
        return Verdict(failure, self.rules.allows_restart(failure, self.attempt))

    def share_stacks(self, text: str) -> list[str]:
        """Send the stacks of this machine's ranks to the first machine; return the others'."""
        return []

    def close(self) -> None:
        """Close the link."""
