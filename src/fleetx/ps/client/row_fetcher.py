"""Fetching of a batch's rows: on demand, or prefetched one step ahead if the batch is known.

`expect` requests the rows of the next step while the current step computes; the `fetch` of that
step then finds the reply, or at least a request in flight. Prefetched rows are used only for
exactly the same ids in exactly the step they were requested for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from fleetx.kernels.index import unique_ids
from fleetx.ps.client.client import Pending
from fleetx.ps.modes.mode import Mode


@dataclasses.dataclass(frozen=True, eq=False)
class Fetch:
    """Rows of a batch's unique ids that are being fetched."""

    keys: Tensor
    """The unique ids, without the padding id."""
    places: Tensor
    """The row index of each id of the batch; index 0 is the padding's, if there is one."""
    rows: Pending[Tensor]


@dataclasses.dataclass(frozen=True, eq=False)
class _Expected:
    when: tuple[int, int]
    ids: Tensor
    fetch: Fetch


class RowFetcher:
    """Fetcher of the rows of one worker's batches."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._expected: dict[str, list[_Expected]] = {}

    def expect(self, table: str, ids: Tensor, padding: int = -1) -> None:
        """Prefetch the rows of the next step's ids, in modes that allow it."""
        if not self._mode.can_pull_ahead:
            return
        mine = ids.clone()  # the script may modify its batch before it is used
        fetch = _begin(self._mode.start_pull_ahead, table, mine, padding)
        now, following = self._when(), self._when(ahead=1)
        known = [other for other in self._expected.get(table, ()) if other.when in (now, following)]
        self._expected[table] = [*known, _Expected(following, mine, fetch)]

    def fetch(self, table: str, ids: Tensor, padding: int = -1) -> Fetch:
        """Start to fetch the rows of ids (flat), unless they were prefetched."""
        known = self._expected.get(table, [])
        for expected in known:
            if expected.when == self._when() and torch.equal(expected.ids, ids):
                known.remove(expected)  # rows have one owner, which may modify them
                return expected.fetch
        return _begin(self._mode.start_pull_sparse, table, ids, padding)

    def _when(self, ahead: int = 0) -> tuple[int, int]:
        """Return the step and the load count: loading other values invalidates fetched rows."""
        return self._mode.step + ahead, self._mode.loads


def _begin(
    start: Callable[[str, Tensor], Pending[Tensor]], table: str, ids: Tensor, padding: int
) -> Fetch:
    keys, places = unique_ids(ids)
    if padding >= 0:
        keys, places = _without(keys, places, padding)
    return Fetch(keys, places, start(table, keys))


def _without(keys: Tensor, places: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """Return ids without the padding id, which gets index 0; the others move up."""
    others = keys != padding
    moved = torch.zeros(len(keys), dtype=torch.int64)
    moved[others] = torch.arange(1, int(others.sum()) + 1)
    return keys[others], moved[places]
