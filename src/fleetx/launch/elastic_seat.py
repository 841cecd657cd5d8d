"""Leader election of an elastic job: one key in etcd with the address of the coordinator.

The key is bound to a lease, which its owner renews. An owner that cannot renew it in time gives up
before the lease expires, so that there are never two. The address is authenticated with the job's
secret: without it, someone who can write to etcd cannot redirect machines.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import threading
import time

from fleetx.launch.etcd import Etcd, EtcdError
from fleetx.launch.records import INVALID, checked

# The owner gives up after this fraction of the lease time without a response of etcd.
_EARLIER = 0.8
_LONGEST_HOST = 255
_LONGEST = 4096


class ForgedSeatError(Exception):
    """The entry in etcd was not written by a machine with the job's secret."""


class Seat:
    """The key of one job."""

    def __init__(self, etcd: Etcd, job: str, secret: bytes, seconds: float) -> None:
        """Take the job's name and secret, and the lease time in seconds."""
        self._etcd = etcd
        self._key = f"/fleetx/{job}/coordinator"
        self._secret = secret or b"fleetx"
        self._seconds = max(2, math.ceil(seconds))  # etcd counts whole seconds
        self._lease = ""
        self._confirmed = 0.0
        self._is_gone = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def holder(self) -> tuple[str, int] | None:
        """Return the address of the coordinator; None if there is none."""
        content = self._etcd.get(self._key)
        return None if content is None else self._read(content)

    def _read(self, content: bytes) -> tuple[str, int]:
        try:
            record = json.loads(content) if len(content) <= _LONGEST else None
            found = checked(record, {"host": str, "port": int, "mac": str})
            host, port, mac = found["host"], found["port"], found["mac"].encode()
            valid = 0 < len(host) <= _LONGEST_HOST and 0 < port < 65536
            valid = valid and hmac.compare_digest(mac, self._mac(host, port).encode())
        except (*INVALID, RecursionError):
            valid = False
        if not valid:
            raise ForgedSeatError(
                f"the entry {self._key} was not written with this job's secret: end the other job, "
                "choose another --job_id, or give all machines the same --job_secret"
            )
        return host, port

    def _mac(self, host: str, port: int) -> str:
        about = json.dumps([self._key, host, port]).encode()
        return hmac.digest(self._secret, about, "sha256").hex()

    def take(self, host: str, port: int) -> bool:
        """Become the owner, with this address; return False if there is another owner."""
        started = time.monotonic()
        lease = self._etcd.grant(self._seconds)
        record = {"host": host, "port": port, "mac": self._mac(host, port)}
        try:
            taken = self._etcd.create(self._key, json.dumps(record).encode(), lease)
        except EtcdError:
            self._end(lease)  # whether it was created is unknown
            raise
        if not taken:
            self._end(lease)
            return False
        self._lease, self._confirmed, self._is_gone = lease, started, False
        self._stop.clear()
        self._thread = threading.Thread(target=self._keep, name="seat", daemon=True)
        self._thread.start()
        return True

    @property
    def is_lost(self) -> bool:
        """Whether another machine may have become the owner; once it is, it stays so."""
        if self._lease and time.monotonic() - self._confirmed > _EARLIER * self._seconds:
            self._is_gone = True
        return self._is_gone

    def leave(self) -> None:
        """Stop being the owner, if this machine is."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            self._end(self._lease)
            self._lease = ""

    def _end(self, lease: str) -> None:
        with contextlib.suppress(EtcdError):  # it expires by itself
            self._etcd.revoke(lease)

    def _keep(self) -> None:
        while not self._stop.wait(self._seconds / 5) and not self.is_lost:
            asked = time.monotonic()
            try:
                alive = self._etcd.keep_alive(self._lease)
            except EtcdError:
                continue  # `is_lost` tells if it lasts too long
            if not alive:
                self._is_gone = True
            self._confirmed = asked
