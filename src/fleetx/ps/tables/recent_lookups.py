"""The rows of the last look-ups: a worker pushes the gradients of the ids that it has pulled.

A push of the same ids need not look them up again, which takes about as long as the update. Only
look-ups that found all their ids are stored, as copies, and all are dropped when rows are removed:
adding a row does not move others.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

# Look-ups of several workers may lie between a pull and its push.
_LOOKUPS = 8
_FEWEST, _MOST = 64, 1 << 18


class RecentLookups:
    """Ids and their rows."""

    def __init__(self) -> None:
        self._kept: deque[tuple[Tensor, Tensor]] = deque(maxlen=_LOOKUPS)

    def keep(self, ids: Tensor, rows: Tensor) -> None:
        """Keep a look-up that has found the rows of all ids."""
        if _FEWEST <= len(ids) <= _MOST:
            # The ids of a request are in memory that the next one will use.
            self._kept.append((ids.clone(), rows))

    def find(self, ids: Tensor) -> Tensor | None:
        """Return the rows of these ids, if they have been looked up in this order."""
        for known, rows in reversed(self._kept):
            if len(known) == len(ids) and torch.equal(known, ids):
                return rows
        return None

    def forget(self) -> None:
        """Drop all: a row may have been reassigned to another id."""
        self._kept.clear()
