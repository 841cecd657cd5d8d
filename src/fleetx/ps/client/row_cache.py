"""Hot rows in memory: the rows that were looked up last, up to a number of bytes and an age.

For rows on live servers it saves requests. For mapped tables the system's page cache does
the same, but by pages of 4 KB: where hot rows are scattered and memory is short, this holds more of
them. A whole batch is looked up at once, so the order of use is that of batches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import torch
from torch import Tensor

from fleetx.kernels.index import IdIndex, unique_ids

Fetch = Callable[[Tensor], Tensor]
# Of an id: its entry in the index, when it was fetched and when it was used.
_OVERHEAD = 24 + 8 + 8
# This fraction of the rows is evicted at once, so that searching for the oldest is rare.
_SHARE_TO_LEAVE = 8


class RowCache:
    """Rows by id, fetched where they are not known or too old.

    Args:
        fetch: returns the rows of distinct ids.
        dim: the length of a row.
        nbytes: the memory for rows and their bookkeeping.
        dtype: the type of rows.
        max_age: the seconds after which a row is fetched again; None for never.
    """

    def __init__(
        self,
        fetch: Fetch,
        dim: int,
        nbytes: int,
        *,
        dtype: torch.dtype = torch.float32,
        max_age: float | None = None,
    ) -> None:
        self._fetch, self._max_age = fetch, max_age
        self.capacity = nbytes // (dim * dtype.itemsize + _OVERHEAD)
        """The number of rows that fit."""
        self._rows = torch.empty(self.capacity, dim, dtype=dtype)
        self._fetched = torch.zeros(self.capacity, dtype=torch.float64)
        self._used = torch.zeros(self.capacity, dtype=torch.int64)
        self._index = IdIndex()
        self._lock = threading.Lock()
        self._turn = 0
        self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._index)

    def __call__(self, ids: Tensor) -> Tensor:
        """Return the rows of ids (flat, may repeat)."""
        keys, places = unique_ids(ids)
        with self._lock:
            self._turn += 1
            now = time.monotonic()
            slots = self._index.lookup(keys)
            is_known = slots >= 0
            if self._max_age is not None:
                is_known &= self._fetched[slots.clamp(min=0)] >= now - self._max_age
            self._used[slots[is_known]] = self._turn
            missing = (~is_known).nonzero().reshape(-1)
            self.misses += len(missing)
            self.hits += len(keys) - len(missing)
            if not len(missing):
                return self._rows[slots[places]]
            fetched = self._fetch(keys[missing])
            found = torch.empty(len(keys), self._rows.shape[1], dtype=self._rows.dtype)
            found[is_known] = self._rows[slots[is_known]]
            found[missing] = fetched
            self._keep(keys[missing], fetched, now)
        return found[places]

    def _keep(self, ids: Tensor, rows: Tensor, now: float) -> None:
        """Store rows, replacing the least recently used ones."""
        is_new = self._index.lookup(ids) < 0
        room = self.capacity - len(self._index)
        if int(is_new.sum()) > room:
            self._forget(max(int(is_new.sum()) - room, self.capacity // _SHARE_TO_LEAVE))
            room = self.capacity - len(self._index)
            if len(ids) > room:  # of a batch that does not fit beside itself, the first rows
                ids, rows = ids[:room], rows[:room]
        slots, _ = self._index.insert(ids)
        self._rows[slots], self._fetched[slots], self._used[slots] = rows, now, self._turn

    def _forget(self, count: int) -> None:
        """Evict the least recently used rows, but none of this batch."""
        ids, slots = self._index.items()
        used = self._used[slots]
        oldest = used.argsort()[:count]
        self._index.remove(ids[oldest[used[oldest] < self._turn]])
