"""Which rows other workers have changed since a worker last asked (geo mode).

What has been handed out stays noted until the worker's next question shows that it arrived, so a
lost answer loses no change; a row told twice does no harm, since its current value is told.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.kernels.index import unique_ids

# Lists of changes are joined when they get this long, so memory is bounded by the distinct ids.
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
        """Note that `worker` has changed these rows."""
        kept = ids.clone()
        for other in self._workers:
            if other != worker:
                self._inbox(table, other).add(kept)

    def _inbox(self, table: int, worker: int) -> _Inbox:
        return self._inboxes.setdefault((table, worker), _Inbox())

    def ask(self, table: int, worker: int, cursor: int) -> tuple[Tensor, int]:
        """Return ids to tell a worker that has received the answer `cursor`, and the next cursor.

        The cursor counts the answers of this server; 0 asks for everything that is not known to
        have arrived.
        """
        inbox = self._inbox(table, worker)
        waiting = inbox.fresh if cursor == inbox.cursor else [inbox.told, *inbox.fresh]
        ids = torch.cat(waiting) if waiting else torch.empty(0, dtype=torch.int64)
        inbox.told, inbox.fresh = unique_ids(ids)[0], []
        inbox.cursor += 1
        return inbox.told, inbox.cursor

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that is not known to have arrived."""
        return {
            f"{table}.{worker}": unique_ids(torch.cat([inbox.told, *inbox.fresh]))[0]
            for (table, worker), inbox in self._inboxes.items()
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` returned."""
        self._inboxes.clear()
        for key, ids in state.items():
            table, worker = map(int, key.split("."))
            # A cursor of another life must not look like the receipt of this one's answers.
            inbox = self._inbox(table, worker)
            inbox.fresh, inbox.cursor = [ids], 1 << 40
