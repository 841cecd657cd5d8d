"""The rows that other workers have changed since a worker's last request (geo mode).

Changes that were sent stay recorded until the worker's next request shows that they arrived, so a
lost reply loses no change. Sending a row twice is harmless, since its current value is sent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.kernels.index import unique_ids

# Lists of changes are merged at this length, so memory is bounded by the number of distinct ids.
_MANY = 64


class _Inbox:
    def __init__(self) -> None:
        self.fresh: list[Tensor] = []
        self.told = torch.empty(0, dtype=torch.int64)
        self.cursor = 0

    def add(self, ids: Tensor) -> None:
        self.fresh.append(ids)
        if len(self.fresh) >= _MANY:
            self.fresh = [unique_ids(torch.cat(self.fresh))[0]]


class GeoChanges:
    """The changed ids per table and worker."""

    def __init__(self, workers: int) -> None:
        self._workers = range(workers)
        self._inboxes: dict[tuple[int, int], _Inbox] = {}

    def add(self, table: int, worker: int, ids: Tensor) -> None:
        """Record that `worker` has changed these rows."""
        kept = ids.clone()
        for other in self._workers:
            if other != worker:
                self._inbox(table, other).add(kept)

    def _inbox(self, table: int, worker: int) -> _Inbox:
        return self._inboxes.setdefault((table, worker), _Inbox())

    def ask(self, table: int, worker: int, cursor: int) -> tuple[Tensor, int]:
        """Return the ids for a worker that has received the reply `cursor`, and the next cursor.

        The cursor counts the replies of this server; 0 requests everything that is not known to
        have arrived.
        """
        inbox = self._inbox(table, worker)
        waiting = inbox.fresh if cursor == inbox.cursor else [inbox.told, *inbox.fresh]
        ids = torch.cat(waiting) if waiting else torch.empty(0, dtype=torch.int64)
        inbox.told, inbox.fresh = unique_ids(ids)[0], []
        inbox.cursor += 1
        return inbox.told, inbox.cursor

    def state_dict(self) -> dict[str, Tensor]:
        """Return all changes that are not known to have arrived."""
        return {
            f"{table}.{worker}": unique_ids(torch.cat([inbox.told, *inbox.fresh]))[0]
            for (table, worker), inbox in self._inboxes.items()
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        self._inboxes.clear()
        for key, ids in state.items():
            table, worker = map(int, key.split("."))
            # A cursor of an earlier process must not acknowledge this one's replies.
            inbox = self._inbox(table, worker)
            inbox.fresh, inbox.cursor = [ids], 1 << 40
