"""Liveness of workers: leases that every message renews, and messages about missing workers.

A process that ends closes its connection; one that is suspended, or cut off from the network, only
falls silent. Both sides therefore send a heartbeat every second and consider a peer lost after
`LEASE` seconds of silence, so that a suspended peer is reported within ten seconds. How long a
needed peer is waited for afterwards is a setting of the job (`worker_wait`, `server_wait`).
"""

from __future__ import annotations

import dataclasses
import time

HEARTBEAT = 1.0
LEASE = 8.0


class PeerLostError(RuntimeError):
    """An error for a required worker or server that has ended or hangs; the text names it."""


@dataclasses.dataclass
class _Lease:
    name: str
    renewed: float
    lost_since: float | None = None


class Leases:
    """The time of each worker's last message, and since when it is missing."""

    def __init__(self, workers: int, seconds: float = LEASE) -> None:
        self._seconds = seconds
        now = time.monotonic()
        self._leases = {
            worker: _Lease(f"worker {worker}, which has not connected yet,", now, lost_since=now)
            for worker in range(workers)
        }

    def renew(self, worker: int, name: str) -> bool:
        """Renew a worker's lease; return whether the worker was missing."""
        lease = self._leases[worker]
        was_missing = lease.lost_since is not None
        lease.name, lease.renewed, lease.lost_since = name, time.monotonic(), None
        return was_missing

    def expire(self) -> list[str]:
        """Expire leases that have run out; return messages about them."""
        now = time.monotonic()
        told = []
        for lease in self._leases.values():
            silent = now - lease.renewed
            if lease.lost_since is None and silent > self._seconds:
                lease.lost_since = now
                told.append(f"{lease.name} has been silent for {silent:.1f} s")
        return told

    def excuse(self, seconds: float) -> None:
        """Extend leases by a time in which no message could be received."""
        for lease in self._leases.values():
            lease.renewed += seconds

    def alive(self) -> set[int]:
        """Return the workers that are alive."""
        return {worker for worker, lease in self._leases.items() if lease.lost_since is None}

    def lost(self, needed: set[int], seconds: float) -> set[int]:
        """Return the needed workers that have been missing for longer than this."""
        now = time.monotonic()
        return {
            worker
            for worker, lease in self._leases.items()
            if worker in needed
            and lease.lost_since is not None
            and now - lease.lost_since > seconds
        }

    def missing(self, needed: set[int]) -> dict[str, float]:
        """Return the names of needed workers that are missing, and for how many seconds."""
        now = time.monotonic()
        return {
            lease.name: now - lease.lost_since
            for worker, lease in self._leases.items()
            if worker in needed and lease.lost_since is not None
        }


def sentence(missing: dict[str, float]) -> str:
    """Return a sentence that names the missing workers and for how long they are missing."""
    return " and ".join(
        f"{name} has been missing for {seconds:.0f} s" for name, seconds in sorted(missing.items())
    )
