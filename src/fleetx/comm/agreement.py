"""Workers compare what they were asked for before they rely on each other.

Workers that were started with different settings would wait for each other in collectives that
never match. Each lays a card with what it was asked for into the store through which all meet;
worker 0 compares them and says what it found, so that all of them end with the same sentence.
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
# How long worker 0, which keeps the store, stays for the others to read the verdict.
_FAREWELL = 5.0


class DisagreementError(RuntimeError):
    """Workers were asked for different things."""


class MissingWorkersError(RuntimeError):
    """Workers did not come in time."""


def agree(
    store: dist.Store,
    rank: int,
    size: int,
    asked: Asked,
    timeout_seconds: float,
    details: Asked | None = None,
) -> None:
    """Return when all workers have been asked for the same; raise on all of them otherwise.

    The store must be fresh: another agreement needs another prefix.

    Args:
        store: through which they talk.
        rank: this worker.
        size: how many there are.
        asked: what to compare.
        timeout_seconds: how long to wait for the others.
        details: more to compare, too long for a card: workers compare a checksum, and only if that
            is all they differ in, the details.
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
        if f": {_CHECKSUM} is " not in str(error):  # something else comes first
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
    """Say in one sentence in what two workers differ; None if they agree."""
    if asked.get("the call") != other.get("the call"):  # nothing else can be compared
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
    """Where the cards are laid; as one worker sees it."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout_seconds: float) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._seconds = timeout_seconds
        self._deadline = time.monotonic() + timeout_seconds

    def compare(self, asked: Asked) -> None:
        """Worker 0: take the cards as they come, and say what was found."""
        self._store.set("first", json.dumps(dict(asked)))
        seen: set[int] = {0}
        for arrival in range(1, self._size):
            other, card = self._card(arrival, seen)
            problem = difference(0, asked, other, card)
            if problem is None and other in seen:
                problem = (
                    f"Two workers say that they are number {other} of {self._size}: every worker "
                    "needs a number of its own (PADDLE_TRAINER_ID, RANK)."
                )
            if problem is not None:
                self._say(problem, arrival)
                raise DisagreementError(problem)
            seen.add(other)
        self._say("", self._size - 1)  # a script may end right after this, and the store with it

    def listen(self, asked: Asked) -> None:
        """Lay a card, compare it with worker 0's, and hear about everybody else's."""
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
        """Give the verdict, and wait until those who came have read it."""
        self._store.set("verdict", problem)
        keys = [f"heard/{i + 1}" for i in range(arrivals)]
        try:
            self._store.wait(keys, datetime.timedelta(seconds=_FAREWELL))
        except (dist.DistStoreError, dist.DistNetworkError):
            # Who has not heard it by now finds worker 0 gone, whose message says why.
            return

    def _get(self, key: str, seen: set[int] | None = None) -> bytes:
        left = self._deadline - time.monotonic()
        if seen is not None and left > _NOTICE_AFTER:
            if self._comes(key, _NOTICE_AFTER):
                return bytes(self._store.get(key))
            print(f"Worker 0 still waits for {self._absent(seen)}.", file=sys.stderr, flush=True)
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
