"""Usage of rows, and the selection of those to evict.

Each row takes eight bytes: a score that counts pushes (and may decay), and the time of the last
push. Tables without eviction store neither.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fleetx.kernels import native
from fleetx.ps.tables.row_rules import EvictionSpec
from fleetx.ps.tables.spec_checks import SpecError
from fleetx.ps.tables.table_spec import TableSpec

_RECORD = np.dtype([("score", np.float32), ("seen", np.uint32)])
LATEST = int(np.iinfo(np.uint32).max)


def check_served(spec: TableSpec) -> None:
    """Reject a table for servers with eviction rules that would never act."""
    eviction = getattr(spec, "eviction", None)
    if eviction is None or eviction.every is not None or not eviction.search_rules:
        return
    rules = " and ".join(f"{name}={value!r}" for name, value in eviction.search_rules.items())
    raise SpecError(
        f"the eviction of table {spec.name!r} has {rules}, but tables on servers are searched for "
        "expired rows only after a number of pushes: set every, for example every=1000."
    )


class Usage:
    """Scores and times of a table's rows."""

    bytes_per_row = _RECORD.itemsize

    def __init__(self, spec: EvictionSpec) -> None:
        self._spec = spec
        self._store = native.RowStore(_RECORD.itemsize)
        self._pushes = 0

    def count_push(self) -> bool:
        """Count a push; return whether a search for expired rows is due."""
        if self._spec.every is None:
            return False
        self._pushes += 1
        is_due = self._pushes >= self._spec.every
        if is_due:
            self._pushes = 0
        return is_due

    def state_dict(self) -> dict[str, Tensor]:
        """Return the pushes since the last regular search, if there are such searches."""
        return {} if self._spec.every is None else {"pushes": torch.tensor([self._pushes])}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue after this many pushes."""
        self._pushes = int(state["pushes"][0]) if "pushes" in state else 0

    def grow(self, rows: int) -> None:
        """Make room for this many rows."""
        self._store.grow(rows)

    def get(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores and times of rows."""
        found = self._read(rows)
        return (
            torch.from_numpy(found["score"].copy()),
            torch.from_numpy(found["seen"].astype(np.int64)),
        )

    def set(self, rows: Tensor, scores: Tensor, seen: Tensor) -> None:
        """Set scores and times of rows."""
        values = np.empty(len(rows), dtype=_RECORD)
        values["score"] = scores.numpy()
        values["seen"] = seen.numpy()
        self._write(rows, values)

    def touch(self, rows: Tensor, counts: Tensor, clock: int) -> None:
        """Record a push of distinct rows."""
        found = self._read(rows)
        found["score"] += counts.numpy()
        found["seen"] = clock
        self._write(rows, found)

    def fade(self, rows: Tensor) -> None:
        """Multiply scores by the eviction's decay."""
        if self._spec.score_decay != 1.0:
            found = self._read(rows)
            found["score"] *= self._spec.score_decay
            self._write(rows, found)

    def expired(self, rows: Tensor, clock: int) -> Tensor:
        """Return which rows have expired, as booleans."""
        found = self._read(rows)
        leave = np.zeros(len(rows), dtype=bool)
        if self._spec.max_unseen is not None:
            leave |= clock - found["seen"].astype(np.int64) > self._spec.max_unseen
        if self._spec.min_score is not None:
            leave |= found["score"] < self._spec.min_score
        return torch.from_numpy(leave)

    def least_used(self, ids: Tensor, rows: Tensor, number: int) -> Tensor:
        """Return the positions of `number` rows: lowest score, then longest unseen, then id."""
        found = self._read(rows)
        order = np.lexsort((ids.numpy(), found["seen"], found["score"]))
        return torch.from_numpy(order[:number])

    def _read(self, rows: Tensor) -> np.ndarray:
        found = np.empty(len(rows), dtype=_RECORD)
        self._store.gather(rows.numpy(), 0, _RECORD.itemsize, found)
        return found

    def _write(self, rows: Tensor, values: np.ndarray) -> None:
        self._store.scatter(rows.numpy(), 0, _RECORD.itemsize, values)
