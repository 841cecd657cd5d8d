"""The row cache: the right rows, no more than fit, none that is too old."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fleetx.ps.client import row_cache
from fleetx.ps.client.row_cache import RowCache

DIM = 3


class Source:
    """Rows that say their id and the version of the table; counts what is fetched."""

    def __init__(self) -> None:
        self.version = 0.0
        self.fetched: list[list[int]] = []

    def __call__(self, ids: Tensor) -> Tensor:
        self.fetched.append(ids.tolist())
        return torch.stack([ids.float(), ids.float() * 2, torch.full((len(ids),), self.version)], 1)


def room_for(rows: int) -> int:
    return rows * (DIM * 4 + row_cache._OVERHEAD)


def test_rows_are_fetched_once() -> None:
    source = Source()
    cache = RowCache(source, DIM, room_for(10))
    assert cache.capacity == 10
    ids = torch.tensor([5, 9, 5, 10**12])
    for _ in range(3):
        assert torch.equal(cache(ids)[:, 0], ids.float())
    assert source.fetched == [[5, 9, 10**12]]
    assert torch.equal(cache(torch.tensor([9, 7]))[:, 1], torch.tensor([18.0, 14.0]))
    assert source.fetched[1:] == [[7]]
    assert (cache.hits, cache.misses) == (7, 4)
    assert cache(ids[:0]).shape == (0, DIM)


def test_those_not_used_for_longest_leave() -> None:
    source = Source()
    cache = RowCache(source, DIM, room_for(16))
    cache(torch.arange(16))
    cache(torch.arange(8))  # used again
    cache(torch.arange(100, 106))
    assert len(cache) <= 16
    before = len(source.fetched)
    assert torch.equal(cache(torch.arange(8))[:, 0], torch.arange(8.0))
    assert torch.equal(cache(torch.arange(100, 106))[:, 0], torch.arange(100.0, 106.0))
    assert len(source.fetched) == before
    cache(torch.tensor([8]))
    assert source.fetched[before:] == [[8]]


def test_batches_larger_than_the_cache() -> None:
    source = Source()
    cache = RowCache(source, DIM, room_for(4))
    for ids in (torch.arange(50), torch.arange(25, 75), torch.arange(3), torch.arange(50)):
        assert torch.equal(cache(ids)[:, 0], ids.float())
        assert len(cache) <= 4
    nothing = RowCache(source, DIM, 10)
    assert torch.equal(nothing(torch.arange(5))[:, 0], torch.arange(5.0))
    assert (nothing.capacity, len(nothing)) == (0, 0)


def test_rows_beyond_their_age_are_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(row_cache.time, "monotonic", lambda: now)
    source = Source()
    cache = RowCache(source, DIM, room_for(4), max_age=1.0)
    ids = torch.tensor([1, 2, 3])
    cache(ids)
    source.version, now = 1.0, 100.9
    assert cache(ids)[:, 2].tolist() == [0.0] * 3
    now = 101.1
    assert cache(torch.tensor([1, 4]))[:, 2].tolist() == [1.0] * 2
    assert cache(ids)[:, 2].tolist() == [1.0] * 3
    assert source.fetched == [[1, 2, 3], [1, 4], [2, 3]]
    assert len(cache) <= 4


def test_random_look_ups_of_a_small_cache() -> None:
    source = Source()
    cache = RowCache(source, DIM, room_for(64))
    draw = torch.Generator().manual_seed(3)
    for _ in range(200):
        ids = torch.randint(
            0, 200, (int(torch.randint(0, 90, (), generator=draw)),), generator=draw
        )
        assert torch.equal(cache(ids)[:, 0], ids.float())
        assert len(cache) <= 64
