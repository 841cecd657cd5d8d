"""The fallback of the compiled index of 64-bit ids (`_index.c`): the same calls on NumPy's arrays.

Open addressing with linear probing, one step for all ids at a time. A slot takes 12 bytes, as in
the compiled index, so that a memory limit corresponds to the same number of rows. Slots of removed
ids stay marked until the table is rebuilt.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from fleetx.kernels.buffers import Array, check_lengths, mix, reduce, take_bytes, take_ids

_EMPTY, _GONE = np.uint32(0xFFFFFFFF), np.uint32(0xFFFFFFFE)
_FIRST_SLOTS = 64
# The hash is reduced to 32 bits: slots have numbers below 2**32.
_MOST_ROWS = 1 << 31


class Index:
    """A mapping of ids to rows: 0, 1, 2, … in order of appearance, reusing removed ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used = self._gone = self._rows = 0
        self._spare = np.empty(0, np.uint32)
        self._spare_count = 0
        self._slot_ids, self._slot_rows = _slots(_FIRST_SLOTS)

    def __len__(self) -> int:
        return self._used

    @property
    def rows(self) -> int:
        """The upper limit of all rows assigned so far."""
        return self._rows

    @property
    def nbytes(self) -> int:
        """The memory of the index, in bytes."""
        return self._slot_ids.nbytes + self._slot_rows.nbytes + self._spare.nbytes

    def lookup(self, ids: Any, rows: Any, /) -> None:
        """Write the row of every id, -1 for unknown ones."""
        ids, rows = take_ids(ids, "ids"), take_ids(rows, "rows", writable=True)
        check_lengths(ids, rows, "ids and rows")
        with self._lock:
            rows[:] = self._look_up(ids)

    def insert(self, ids: Any, rows: Any, fresh: Any, /) -> int:
        """Assign rows to unknown ids too; write their positions to `fresh`, return their number."""
        ids, rows = take_ids(ids, "ids"), take_ids(rows, "rows", writable=True)
        fresh = take_ids(fresh, "fresh", writable=True)
        check_lengths(ids, rows, "ids and rows")
        check_lengths(ids, fresh, "ids and fresh")
        with self._lock:
            found = self._look_up(ids)
            unknown = np.flatnonzero(found < 0)
            positions, inverse = first_places(ids[unknown])
            made = self._make_rows(len(positions))
            self._make_room(len(positions))
            self._take_rows(len(positions))
            positions = unknown[positions]
            self._place(ids[positions], made)
            found[unknown] = made[inverse]
            rows[:] = found
            fresh[: len(positions)] = positions
        return len(positions)

    def remove(self, ids: Any, /) -> int:
        """Remove ids and return how many were known; their rows are reused."""
        ids = take_ids(ids, "ids")
        with self._lock:
            slots = self._find(ids[first_places(ids)[0]])
            slots = slots[slots >= 0]
            self._keep_spare(self._slot_rows[slots])
            self._slot_rows[slots] = _GONE
            self._used -= len(slots)
            self._gone += len(slots)
        return len(slots)

    def ids_by_row(self, ids: Any, live: Any, /) -> None:
        """Write the id of every row, and 1 for rows in use."""
        ids, (live, _) = (
            take_ids(ids, "ids", writable=True),
            take_bytes(live, "live", writable=True),
        )
        with self._lock:
            if len(ids) != self._rows or len(live) != self._rows:
                raise ValueError(f"ids and live must have {self._rows} elements.")
            known = np.flatnonzero(self._slot_rows < _GONE)
            rows = self._slot_rows[known]
            ids[:] = 0
            live[:] = 0
            ids[rows] = self._slot_ids[known]
            live[rows] = 1

    # -- rows -------------------------------------------------------------------------------------
    def _make_rows(self, count: int) -> Array:
        """Return rows for new ids, reused ones first; `_take_rows` marks them as used."""
        again = min(count, self._spare_count)
        if self._rows + count - again > _MOST_ROWS:
            raise OverflowError(
                f"a table has at most {_MOST_ROWS} rows if fleetx.kernels._index is not compiled."
            )
        spare = self._spare[self._spare_count - again : self._spare_count][::-1]
        new = np.arange(self._rows, self._rows + count - again, dtype=np.uint32)
        return np.concatenate([spare, new])

    def _take_rows(self, count: int) -> None:
        again = min(count, self._spare_count)
        self._spare_count -= again
        self._rows += count - again

    def _keep_spare(self, rows: Array) -> None:
        count = self._spare_count + len(rows)
        if count > len(self._spare):
            grown = np.empty(max(count, 2 * len(self._spare)), np.uint32)
            grown[: self._spare_count] = self._spare[: self._spare_count]
            self._spare = grown
        self._spare[self._spare_count : count] = rows
        self._spare_count = count

    # -- slots ------------------------------------------------------------------------------------
    def _home(self, ids: Array) -> Array:
        return reduce(mix(ids.view(np.uint64)), len(self._slot_ids))

    def _next(self, slots: Array) -> Array:
        slots = slots + 1
        slots[slots == len(self._slot_ids)] = 0
        return slots

    def _find(self, ids: Array) -> Array:
        """Return the slot of every id, -1 for unknown ones."""
        found = np.full(len(ids), -1, np.int64)
        waiting, slots = np.arange(len(ids)), self._home(ids)
        while len(waiting):
            rows = self._slot_rows[slots]
            here = (self._slot_ids[slots] == ids[waiting]) & (rows < _GONE)
            found[waiting[here]] = slots[here]
            goes_on = ~here & (rows != _EMPTY)
            waiting, slots = waiting[goes_on], self._next(slots[goes_on])
        return found

    def _look_up(self, ids: Array) -> Array:
        slots = self._find(ids)
        rows = self._slot_rows[slots].astype(np.int64)  # slot -1 is any row, replaced below
        rows[slots < 0] = -1
        return rows

    def _place(self, ids: Array, rows: Array) -> None:
        """Put distinct unknown ids into free slots."""
        waiting, slots = np.arange(len(ids)), self._home(ids)
        while len(waiting):
            before = self._slot_rows[slots]
            free = before >= _GONE
            # Several ids may claim one slot: the last writer gets it.
            self._slot_rows[slots[free]] = rows[waiting[free]]
            won = free & (self._slot_rows[slots] == rows[waiting])
            self._slot_ids[slots[won]] = ids[waiting[won]]
            self._gone -= int(np.count_nonzero(before[won] == _GONE))
            waiting, slots = waiting[~won], self._next(slots[~won])
        self._used += len(ids)

    def _make_room(self, more: int) -> None:
        """Rebuild the table if used and marked slots would exceed three quarters of it."""
        capacity, wanted = len(self._slot_ids), self._used + more
        if wanted + self._gone <= capacity // 4 * 3:
            return
        while wanted > capacity // 4 * 3:
            capacity += capacity // 4
        old_ids, old_rows = self._slot_ids, self._slot_rows
        self._slot_ids, self._slot_rows = _slots(capacity)
        known = old_rows < _GONE
        self._used = self._gone = 0
        self._place(old_ids[known], old_rows[known])


def _slots(count: int) -> tuple[Array, Array]:
    return np.empty(count, np.int64), np.full(count, _EMPTY)


def first_places(ids: Array) -> tuple[Array, Array]:
    """Return the first positions of distinct ids, in order, and the index of every id there."""
    _, places, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(places)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return places[order], number[inverse]


def unique(ids: Any, found: Any, inverse: Any, /) -> int:
    """Write the distinct ids, in order of appearance, and the index of each id among them."""
    ids, found = take_ids(ids, "ids"), take_ids(found, "found", writable=True)
    inverse = take_ids(inverse, "inverse", writable=True)
    check_lengths(ids, found, "ids and found")
    check_lengths(ids, inverse, "ids and inverse")
    places, numbers = first_places(ids)
    found[: len(places)] = ids[places]
    inverse[:] = numbers
    return len(places)


def _servers_of(ids: Array, servers: int) -> Array:
    # A different hash than the index's: ids of one server must not cluster in its index.
    return reduce(mix(ids.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)), servers)


def route(ids: Any, n: int, servers: Any, /) -> None:
    """Write the server of every id."""
    if not 1 <= n < 1 << 32:
        raise ValueError(f"there must be a server, and at most 2**32 - 1, not {n}.")
    ids, servers = take_ids(ids, "ids"), take_ids(servers, "servers", writable=True)
    check_lengths(ids, servers, "ids and servers")
    servers[:] = _servers_of(ids, n)


def split(ids: Any, order: Any, counts: Any, /) -> None:
    """Write positions sorted by server, and the count of each server."""
    ids, order = take_ids(ids, "ids"), take_ids(order, "order", writable=True)
    counts = take_ids(counts, "counts", writable=True)
    check_lengths(ids, order, "ids and order")
    if not len(counts):
        raise ValueError("counts must have an element for every server.")
    servers = _servers_of(ids, len(counts))
    order[:] = np.argsort(servers, kind="stable")
    counts[:] = np.bincount(servers, minlength=len(counts))
