"""Rows of a batch, fetched when they are needed or, if the batch is known by then, a step ahead.

`expect` asks the servers for the rows of the next step while this step is still computed; the
`fetch` of that step then finds the answer there, or at least on its way. Rows that were expected
are used for the very same ids in the very step they were asked for, and for nothing else.
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
    """Rows of a batch's unique ids that are on their way."""

    keys: Tensor
    """The unique ids, without the padding."""
    places: Tensor
    """For each id of the batch the place of its row; with a padding, place 0 is the padding's."""
    rows: Pending[Tensor]


@dataclasses.dataclass(frozen=True, eq=False)
class _Expected:
    when: tuple[int, int]
    ids: Tensor
    fetch: Fetch


class RowFetcher:
    """Fetches the rows of batches for one worker."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._expected: dict[str, list[_Expected]] = {}

    def expect(self, table: str, ids: Tensor, padding: int = -1) -> None:
        """Begin to fetch the rows of the next step's ids, in modes where that is right."""
        if not self._mode.can_pull_ahead:
            return
        mine = ids.clone()  # the script may change its batch before it runs it
        fetch = _begin(self._mode.start_pull_ahead, table, mine, padding)
        now, following = self._when(), self._when(ahead=1)
        known = [other for other in self._expected.get(table, ()) if other.when in (now, following)]
        self._expected[table] = [*known, _Expected(following, mine, fetch)]

    def fetch(self, table: str, ids: Tensor, padding: int = -1) -> Fetch:
        """Begin to fetch the rows of ids (flat), unless that has been done ahead."""
        known = self._expected.get(table, [])
        for expected in known:
            if expected.when == self._when() and torch.equal(expected.ids, ids):
                known.remove(expected)  # the rows are one user's, who may change them
                return expected.fetch
        return _begin(self._mode.start_pull_sparse, table, ids, padding)

    def _when(self, ahead: int = 0) -> tuple[int, int]:
        """Return the step, and which values have been loaded: other ones make rows useless."""
        return self._mode.step + ahead, self._mode.loads


def _begin(
    start: Callable[[str, Tensor], Pending[Tensor]], table: str, ids: Tensor, padding: int
) -> Fetch:
    keys, places = unique_ids(ids)
    if padding >= 0:
        keys, places = _without(keys, places, padding)
    return Fetch(keys, places, start(table, keys))


def _without(keys: Tensor, places: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """Return ids without the padding id; place 0 is its, and the others move up."""
    others = keys != padding
    moved = torch.zeros(len(keys), dtype=torch.int64)
    moved[others] = torch.arange(1, int(others.sum()) + 1)
    return keys[others], moved[places]
