"""What a supervisor knows of the other machines: `Link`, here for a job on one machine only.

The supervisor reports what happens to its own workers and asks for the verdict on the whole job.
`Root` and `Member` (rendezvous) give the same answers for several machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from fleetx.launch.devices import Devices
from fleetx.launch.failure import Failure
from fleetx.launch.layout import Cluster, Site, alone

# Ends a wait with StopRequest when somebody asked for the end.
Check = Callable[[], None]
# Makes the keys of a job whose servers have these addresses; None if it needs none.
MakeKeys = Callable[[Iterable[str]], Mapping[str, str] | None]


@dataclass(frozen=True)
class Verdict:
    """How an attempt ended: the failure, and whether the workers are started again."""

    failure: Failure
    again: bool = False


@dataclass(frozen=True)
class Rules:
    """When to give up and when to try again."""

    rdzv_timeout: float = 300.0
    hang_timeout: float | None = None
    max_restart: int = 0
    make_keys: MakeKeys | None = None
    """Makes the keys of a server job when its servers are known."""
    own_keys: Mapping[str, str] | None = field(default=None, repr=False)
    """Keys that this machine has from a file."""

    def keys(self, servers: Iterable[str]) -> Mapping[str, str] | None:
        """Return the keys of a job with these servers, None if it has none."""
        if self.own_keys is not None or self.make_keys is None:
            return self.own_keys
        return self.make_keys(servers)

    def allows_restart(self, failure: Failure, attempt: int) -> bool:
        """Say whether attempt number `attempt`, which failed, is followed by another."""
        return attempt < self.max_restart and failure.kind in ("exit", "hang")

    def hang(self, idle: float, host: str) -> Failure | None:
        """Return the failure when nobody has made a step for too long."""
        if self.hang_timeout is None or idle < self.hang_timeout:
            return None
        sentence = (
            f"No worker made a step or wrote a line for {idle:.0f} s (--hang_timeout "
            f"{self.hang_timeout:g}); the ranks' stacks are printed above."
        )
        return Failure(kind="hang", host=host, sentence=sentence, code=1)


class Link:
    """The link of a job that has one machine."""

    def __init__(self, site: Site, devices: Devices, rules: Rules) -> None:
        self.site = site
        self.devices = devices
        self.rules = rules
        self.attempt = 0
        self.finished = False
        """Whether the whole job is done."""
        self._failures: list[Failure] = []

    def meet(self, attempt: int, check: Check) -> Cluster:
        """Wait until all machines are there for this attempt, and return the job."""
        self.attempt = attempt
        self._failures.clear()
        cluster = alone(self.site, self.devices)
        return replace(cluster, keys=self.rules.keys(cluster.servers))

    def report(self, failure: Failure) -> None:
        """Tell everybody what happened here."""
        self._failures.append(failure)

    def complete(self) -> None:
        """Say that all workers of this machine ended well."""
        self.finished = True

    def poll(self, idle: float) -> Verdict | None:
        """Return the verdict, if the job is to stop; `idle`: seconds since the last step here."""
        if not self._failures:
            hang = self.rules.hang(idle, self.site.host or "")
            if hang is None:
                return None
            self._failures.append(hang)
        failure = self._failures[0]
        return Verdict(failure, self.rules.allows_restart(failure, self.attempt))

    def share_stacks(self, text: str) -> list[str]:
        """Give the stacks of this machine's ranks to the first machine; return the others'."""
        return []

    def close(self) -> None:
        """End the link."""
