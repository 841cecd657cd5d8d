"""Comparison of the workers' settings before they communicate.

Workers started with different settings would wait for each other in collectives that never match.
Each worker puts its settings into the rendezvous store; worker 0 compares them and publishes the
result, so that all workers fail with the same message.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import sys
import time
from collections.abc import Mapping

import torch.distributed as dist

Asked = Mapping[str, str]

_MOST_DIFFERENCES = 5
_CHECKSUM = "the whole of it (checksum)"
_NOTICE_AFTER = 20.0
# How long worker 0, which hosts the store, waits for the others to read the result.
_READ_SECONDS = 5.0


class DisagreementError(RuntimeError):
    """An error for workers with different settings."""


class MissingWorkersError(RuntimeError):
    """An error for workers that did not join in time."""


def agree(
    store: dist.Store,
    rank: int,
    size: int,
    asked: Asked,
    timeout_seconds: float,
    details: Asked | None = None,
) -> None:
    """Return if all workers have the same settings; raise on all of them otherwise.

    The store must be fresh: another comparison needs another prefix.

    Args:
        store: the store that all workers share.
        rank: the rank of this worker.
        size: the number of workers.
        asked: the settings to compare.
        timeout_seconds: how long to wait for the others.
        details: settings too long to send at once: workers compare a checksum, and the details
            only if everything else is equal.
    """
    asked = {"number of workers": str(size), **asked}
    if details is None:
        _agree(_Table(store, rank, size, timeout_seconds), rank, asked)
        return
    content = json.dumps(list(details.items())).encode()
    checksum = {_CHECKSUM: hashlib.sha256(content).hexdigest()[:12]}
    try:
        _agree(_Table(store, rank, size, timeout_seconds), rank, {**asked, **checksum})
    except DisagreementError as error:
        if f": {_CHECKSUM} is " not in str(error):  # another difference takes precedence
            raise
        again = dist.PrefixStore("details", store)
        _agree(_Table(again, rank, size, timeout_seconds), rank, {**asked, **details})
        raise


def _agree(table: _Table, rank: int, asked: Asked) -> None:
    if rank == 0:
        table.compare(asked)
    else:
        table.listen(asked)


def difference(first: int, asked: Asked, second: int, other: Asked) -> str | None:
    """Describe in one sentence how two workers differ; return None if they agree."""
    if asked.get("the call") != other.get("the call"):  # the rest is not comparable
        asked, other = ({"the call": a.get("the call", "not known")} for a in (asked, other))
    parts = [
        f"{name} is {asked.get(name, 'not set')} on worker {first} and "
        f"{other.get(name, 'not set')} on worker {second}"
        for name in dict.fromkeys([*asked, *other])
        if asked.get(name) != other.get(name)
    ]
    if not parts:
        return None
    more = len(parts) - _MOST_DIFFERENCES
    listed = "; ".join(parts[:_MOST_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")
    return f"Workers were started for different jobs: {listed}. Start all of them alike."


class _Table:
    """The comparison through the store, as seen by one worker."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout_seconds: float) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._seconds = timeout_seconds
        self._deadline = time.monotonic() + timeout_seconds

    def compare(self, asked: Asked) -> None:
        """Compare the settings as they arrive and publish the result (worker 0)."""
        self._store.set("first", json.dumps(dict(asked)))
        seen: set[int] = {0}
        for arrival in range(1, self._size):
            other, card = self._card(arrival, seen)
            problem = difference(0, asked, other, card)
            if problem is None and other in seen:
                problem = (
                    f"Two workers have rank {other} of {self._size}: every worker "
                    "needs its own rank (PADDLE_TRAINER_ID, RANK)."
                )
            if problem is not None:
                self._say(problem, arrival)
                raise DisagreementError(problem)
            seen.add(other)
        self._say("", self._size - 1)  # a script may end right after this, and the store with it

    def listen(self, asked: Asked) -> None:
        """Publish the settings, compare them with worker 0's, and wait for its result."""
        arrival = self._store.add("arrivals", 1)
        self._store.set(f"card/{arrival}", json.dumps([self._rank, dict(asked)]))
        problem = difference(0, json.loads(self._get("first")), self._rank, asked)
        if problem is None:
            problem = self._get("verdict").decode()
        self._store.set(f"heard/{arrival}", "")
        if problem:
            raise DisagreementError(problem)

    def _card(self, arrival: int, seen: set[int]) -> tuple[int, Asked]:
        rank, asked = json.loads(self._get(f"card/{arrival}", seen))
        return rank, asked

    def _say(self, problem: str, arrivals: int) -> None:
        """Publish the result, and wait until all workers that have joined have read it."""
        self._store.set("verdict", problem)
        keys = [f"heard/{i + 1}" for i in range(arrivals)]
        try:
            self._store.wait(keys, datetime.timedelta(seconds=_READ_SECONDS))
        except (dist.DistStoreError, dist.DistNetworkError):
            # A worker that has not read it by now loses worker 0, whose message gives the reason.
            return

    def _get(self, key: str, seen: set[int] | None = None) -> bytes:
        left = self._deadline - time.monotonic()
        if seen is not None and left > _NOTICE_AFTER:
            if self._comes(key, _NOTICE_AFTER):
                return bytes(self._store.get(key))
            print(
                f"Worker 0 is still waiting for {self._absent(seen)}.", file=sys.stderr, flush=True
            )
        if not self._comes(key, self._deadline - time.monotonic()):
            raise MissingWorkersError(self._missing(seen))
        return bytes(self._store.get(key))

    def _comes(self, key: str, seconds: float) -> bool:
        try:
            self._store.wait([key], datetime.timedelta(seconds=max(0.001, seconds)))
        except dist.DistStoreError:
            return False
        return True

    def _absent(self, seen: set[int]) -> str:
        absent = [str(rank) for rank in range(self._size) if rank not in seen]
        return f"worker{'s' if len(absent) > 1 else ''} {', '.join(absent)} of {self._size}"

    def _missing(self, seen: set[int] | None) -> str:
        absent = "the others" if seen is None else self._absent(seen)
        return f"worker {self._rank} waited {self._seconds:.0f} s for {absent}"
