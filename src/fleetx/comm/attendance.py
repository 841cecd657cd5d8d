"""A bounded agreement on whether all workers take part in something.

A call that averages over the workers hangs if some of them never make it, and scripts often save on
one worker alone. So workers first register in the store: if all of them arrive within a time limit,
all proceed to average; otherwise those that arrived, and those that arrive later, do not.

The store holds one record, which only an atomic compare-and-set changes. Its fields: the round, the
point of the training at which it was opened, the ranks that have arrived, and the decision.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace

import torch.distributed as dist

from fleetx import torch_private
from fleetx.comm import world

_RECORD = "record"
_ALL, _ALONE = "all", "alone"
_PAUSE = 0.02
"""Seconds between two polls of the store. Its own `wait` logs socket warnings on a timeout,
which is normal here.
"""


@dataclass(frozen=True)
class _Record:
    round: int = 0
    point: str = ""
    arrived: tuple[int, ...] = ()
    decision: str = _ALONE

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: bytes) -> _Record:
        fields = json.loads(text)
        return cls(**{**fields, "arrived": tuple(fields["arrived"])})


def all_attend(point: str, seconds: float) -> bool:
    """Return whether all workers call this at the same point of the training; the answer is the
    same on all workers that registered for it.

    Args:
        point: where this worker is in its training; workers elsewhere do not count.
        seconds: how long to wait for the others.
    """
    world.meet()
    store = dist.PrefixStore("fleetx/attendance", torch_private.default_store())
    point = f"{world.agreements()} {point}"  # of this session, not of an earlier one
    try:
        return Register(store, world.rank(), world.world_size()).all_attend(point, seconds)
    except dist.DistNetworkError:  # the worker that holds the store has ended
        return False


class Register:
    """The record in the store, as one worker uses it."""

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size

    def all_attend(self, point: str, seconds: float) -> bool:
        """Register, wait for the others and return the decision; see the function."""
        opened = self._arrive(point)
        if opened is None:
            return False
        if opened.decision != _ALL:
            try:
                self._wait_for_decision(opened.round, time.monotonic() + seconds)
            finally:  # after an interrupt too: this worker will not take part
                self._close(opened.round)
        # A later round means that this one was closed: without this worker there is no average.
        record = self._read()
        return record.round == opened.round and record.decision == _ALL

    def _wait_for_decision(self, number: int, end: float) -> None:
        while time.monotonic() < end:
            record = self._read()
            if record.round != number or record.decision:
                return
            time.sleep(_PAUSE)

    def _arrive(self, point: str) -> _Record | None:
        """Register for the round at this point, or open one; return None if it is too late."""
        while True:
            record = self._read()
            joins = record.point == point and self._rank not in record.arrived
            if record.decision == _ALL or (record.decision == _ALONE and not joins):
                entered = _Record(record.round + 1, point, (self._rank,), "")
            elif not joins:  # workers are at another point, where this one is not expected
                return None
            else:
                arrived = (*record.arrived, self._rank)
                complete = record.decision == "" and len(arrived) == self._size
                decision = _ALL if complete else record.decision
                entered = replace(record, arrived=arrived, decision=decision)
            if self._change(record, entered):
                return None if entered.decision == _ALONE else entered

    def _close(self, number: int) -> None:
        """Decide that not all workers come, unless the round has been decided meanwhile."""
        record = self._read()
        while record.round == number and record.decision == "":
            self._change(record, replace(record, decision=_ALONE))
            record = self._read()

    def _read(self) -> _Record:
        return _Record.read(self._store.compare_set(_RECORD, "", _Record().text()))

    def _change(self, old: _Record, new: _Record) -> bool:
        return bytes(self._store.compare_set(_RECORD, old.text(), new.text())) == (
            new.text().encode()
        )
