"""Sparse tables: which ids get a row, and which rows are evicted."""

import pytest
import torch
from test_sparse_table import DIM, POOL, make

from fleetx.ps.tables.table_spec import (
    EntrySpec,
    EvictionSpec,
)

# Each test runs with the compiled modules and with their fallbacks.
pytestmark = pytest.mark.usefixtures("implementation")


class TestAdmission:
    def push(self, table, ids, **more):
        table.push(torch.tensor(ids), torch.ones(len(ids), DIM).double(), **more)

    def test_the_nth_look_up_finds_a_row(self):
        table, ids = make(entry=EntrySpec(kind="count", value=3)), torch.tensor([5])
        first = make().pull(ids)
        for look in (1, 2):
            assert table.pull(ids).eq(0).all(), look
            self.push(table, [5])
        assert torch.equal(table.pull(ids), first)
        self.push(table, [5])
        torch.testing.assert_close(table.pull(ids), first - 0.1)

    def test_repetitions_count(self):
        table = make(entry=EntrySpec(kind="count", value=4))
        self.push(table, [1, 1, 1, 2, 2])
        self.push(table, [3, 4], counts=torch.tensor([3, 2]))
        assert table.state_dict()["ids"].tolist() == [1, 3]

    @pytest.mark.parametrize("value", [0, 1])
    def test_a_count_of_one_lets_everybody_in(self, value):
        table = make(entry=EntrySpec(kind="count", value=value))
        assert torch.equal(table.pull(POOL), make().pull(POOL))
        self.push(table, [1])
        assert len(table) == 1

    def test_probability(self):
        table = make(entry=EntrySpec(kind="probability", value=0.25))
        ids = list(range(4000))
        shares = []
        for _ in range(3):
            self.push(table, ids)
            shares.append(len(table) / 4000)
        assert shares == pytest.approx([0.25, 1 - 0.75**2, 1 - 0.75**3], abs=0.03)
        again = make(entry=EntrySpec(kind="probability", value=0.25))
        for _ in range(3):
            self.push(again, ids)
        assert torch.equal(again.pull(torch.tensor(ids)), table.pull(torch.tensor(ids)))

    @pytest.mark.parametrize("entry", [("count", 3), ("probability", 0.3)])
    def test_a_restored_table_decides_alike(self, entry):
        spec = EntrySpec(kind=entry[0], value=entry[1])
        whole, first, second = make(entry=spec), make(entry=spec), make(entry=spec)
        runs = [ids.tolist() for ids in torch.randint(0, 50, (8, 20)).unbind()]
        for ids in runs:
            self.push(whole, ids)
        for ids in runs[:4]:
            self.push(first, ids)
        second.load_state_dict(first.state_dict())
        for ids in runs[4:]:
            self.push(second, ids)
        assert torch.equal(second.pull(torch.arange(50)), whole.pull(torch.arange(50)))


class TestEviction:
    def push(self, table, ids):
        table.push(torch.tensor(ids), torch.ones(len(ids), DIM).double())

    def ids(self, table):
        return sorted(table.state_dict()["ids"].tolist())

    def test_by_time_unseen(self):
        table = make(eviction=EvictionSpec(max_unseen=10))
        self.push(table, [1, 2])
        table.clock = 8
        self.push(table, [2, 3])
        assert table.evict(clock=10) == 0
        assert table.evict(clock=11) == 1
        assert self.ids(table) == [2, 3]
        first = make().pull(torch.tensor([1]))
        assert torch.equal(table.pull(torch.tensor([1])), first)

    def test_by_score(self):
        table = make(eviction=EvictionSpec(min_score=1.0, score_decay=0.5))
        self.push(table, [1, 1, 1, 1, 2, 2, 3])
        assert table.evict() == 1
        assert self.ids(table) == [1, 2]
        assert table.evict() == 1
        assert self.ids(table) == [1]

    def test_by_least_use_within_a_memory_limit(self):
        limit = 100 * (DIM * 8 + 8 + 24)
        table = make(eviction=EvictionSpec(max_bytes=limit))
        favourites = list(range(20))
        for start in range(100, 2000, 50):
            self.push(table, favourites + list(range(start, start + 50)))
            assert len(table) <= 100
            assert table.nbytes <= 2 * limit  # one push may exceed the limit for a moment
        assert set(favourites) <= set(self.ids(table))

    def test_what_was_looked_up_before_is_not_believed_afterwards(self):
        """A push uses the rows of the pull before it, but not if rows have been removed since."""
        ids, others = torch.arange(100), torch.arange(100, 200)
        table = make("adagrad", eviction=EvictionSpec(max_unseen=0))
        self.push(table, ids.tolist())
        table.pull(ids)
        table.evict(clock=1)
        self.push(table, others.tolist())
        table.clock = 2
        self.push(table, ids.tolist())
        fresh = make("adagrad")
        self.push(fresh, ids.tolist() + others.tolist())
        for part in (ids, others):
            assert torch.equal(table.pull(part), fresh.pull(part))

    def test_a_new_row_in_an_old_place_starts_anew(self):
        table = make("adam", eviction=EvictionSpec(max_unseen=0))
        self.push(table, [1, 2, 3])
        table.evict(clock=1)
        assert len(table) == 0
        self.push(table, [4, 5])
        other = make("adam")
        self.push(other, [4, 5])
        self.push(table, [4, 5])
        self.push(other, [4, 5])
        assert torch.equal(table.pull(torch.tensor([4, 5])), other.pull(torch.tensor([4, 5])))

    def test_the_clock_is_checked(self):
        table = make()
        for wrong in (-1, 2**32, 1.5):
            with pytest.raises(ValueError, match="clock"):
                table.clock = wrong
        assert table.evict() == 0
