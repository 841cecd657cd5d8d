"""Sparse tables: which ids get a row, and which rows are evicted."""

import pytest
import torch
from test_sparse_table import DIM, POOL, make

from fleetx.ps.tables.row_rules import EntrySpec, EvictionSpec

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


class TestRegularEviction:
    """Searches for expired rows after every so many pushes."""

    def push(self, table, *ids):
        table.push(torch.tensor(ids), torch.ones(len(ids), DIM).double())

    def add(self, table, *ids):
        table.add(torch.tensor(ids), torch.ones(len(ids), DIM).double())

    def ids(self, table):
        return sorted(table.state_dict()["ids"].tolist())

    def assert_same_state(self, one, two):
        """Rows may be in another order: that of their places in memory."""
        states = one.state_dict(), two.state_dict()
        assert states[0].keys() == states[1].keys()
        per_row = {"ids", "score", "seen", *one.columns}
        for keys, names in (("ids", per_row), ("waiting_ids", {"waiting_ids", "waiting_counts"})):
            for state in states:
                if keys in state:
                    order = state[keys].argsort()
                    state.update({name: state[name][order] for name in names})
        for name, value in states[0].items():
            assert torch.equal(value, states[1][name]), name

    def test_time_is_counted_in_searches(self):
        table = make(eviction=EvictionSpec(max_unseen=1, every=2))
        found = []
        self.push(table, 1, 2)
        for _ in range(6):
            self.push(table, 2)
            found.append((self.ids(table), table.clock))
        # 1 is pushed before the first search, and missing in the second and the third.
        assert found == [
            ([1, 2], 1),
            ([1, 2], 1),
            ([1, 2], 2),
            ([1, 2], 2),
            ([2], 3),
            ([2], 3),
        ]
        first = make().pull(torch.tensor([1]))
        assert torch.equal(table.pull(torch.tensor([1])), first)

    def test_a_row_pushed_since_the_last_search_is_not_unseen(self):
        table = make(eviction=EvictionSpec(max_unseen=0, every=2))
        self.push(table, 1)
        self.push(table, 2)
        assert self.ids(table) == [1, 2]
        self.push(table, 2)
        self.push(table, 3)
        assert self.ids(table) == [2, 3]

    def test_by_score(self):
        table = make(eviction=EvictionSpec(min_score=1.0, score_decay=0.5, every=3))
        self.push(table, 1, 1, 1, 1)
        self.push(table, 2, 2, 3)
        assert self.ids(table) == [1, 2, 3]
        self.push(table, 4, 4, 4, 4, 4, 4, 4, 4)
        assert self.ids(table) == [1, 2, 4]
        for _ in range(3):
            self.push(table, 2)
        assert self.ids(table) == [1, 2, 4]
        for _ in range(3):
            self.push(table, 2)
        assert self.ids(table) == [2, 4]

    def test_by_least_use_after_decay_within_a_memory_limit(self):
        limit = 10 * (DIM * 8 + 8 + 24)
        for decay, stays in (({}, True), ({"score_decay": 0.1, "every": 2}, False)):
            table = make(eviction=EvictionSpec(max_bytes=limit, **decay))
            self.push(table, *[1] * 8)
            self.push(table, 2)
            self.push(table, *range(2, 13))
            assert (1 in self.ids(table)) is stays
            assert len(table) == 9

    def test_additions_count_as_pushes(self):
        table = make(eviction=EvictionSpec(max_unseen=0, every=2))
        self.add(table, 1)
        self.push(table, 2)
        assert table.clock == 1
        self.add(table, 2)
        self.add(table, 3)
        assert table.clock == 2
        assert self.ids(table) == [2, 3]

    def test_an_evicted_id_has_to_be_admitted_again(self):
        entry = EntrySpec(kind="count", value=3)
        table = make(entry=entry, eviction=EvictionSpec(max_unseen=0, every=2))
        self.push(table, 1, 1, 2)
        self.push(table, 3)
        assert self.ids(table) == [1]
        for _ in range(2):
            self.push(table, 3)
        assert self.ids(table) == [3]
        assert table.pull(torch.tensor([1])).eq(0).all()
        self.push(table, 1)
        self.push(table, 3)
        assert self.ids(table) == [3]
        self.push(table, 1)
        self.push(table, 3)
        assert self.ids(table) == [1, 3]

    def test_the_script_may_search_in_between(self):
        table = make(eviction=EvictionSpec(max_unseen=0, every=3))
        self.push(table, 1)
        assert table.evict(clock=5) == 1
        self.push(table, 2)
        assert table.clock == 5
        self.push(table, 3)
        assert table.clock == 6
        assert self.ids(table) == [2, 3]

    def test_time_ends_at_the_latest_stamp(self):
        table = make(eviction=EvictionSpec(max_unseen=0, every=1))
        table.clock = 2**32 - 1
        self.push(table, 1)
        assert table.clock == 2**32 - 1

    @pytest.mark.parametrize("entry", [None, EntrySpec(kind="count", value=3)])
    @pytest.mark.parametrize("kind", ["sgd", "adam"])
    def test_a_table_restored_between_two_searches_goes_on_alike(self, kind, entry):
        """A snapshot and the log of later pushes give the same table, wherever the snapshot is."""
        eviction = EvictionSpec(max_unseen=1, min_score=0.4, score_decay=0.5, every=3)
        dice = torch.Generator().manual_seed(4)
        log = [torch.randint(0, 20, (6,), generator=dice).tolist() for _ in range(17)]

        def replay(table, start):
            for number in range(start, len(log)):
                (self.add if number % 4 == 3 else self.push)(table, *log[number])

        whole, states = make(kind, entry=entry, eviction=eviction), []
        made = set()
        for number, ids in enumerate(log):
            states.append(whole.state_dict())
            (self.add if number % 4 == 3 else self.push)(whole, *ids)
            made |= set(self.ids(whole))
        assert whole.clock == 5
        assert 0 < len(whole) < len(made), "some rows were dropped"
        for start, state in enumerate(states):
            table = make(kind, entry=entry, eviction=eviction)
            table.load_state_dict(state)
            replay(table, start)
            self.assert_same_state(table, whole)

    def test_a_state_without_the_count_begins_an_interval(self):
        eviction = EvictionSpec(max_unseen=5, every=3)
        table, other = make(eviction=eviction), make(eviction=eviction)
        for _ in range(2):
            self.push(table, 1)
        state = table.state_dict()
        assert state.pop("pushes").tolist() == [2]
        other.load_state_dict(state)
        for _ in range(2):
            self.push(other, 1)
        assert other.clock == 0
        self.push(other, 1)
        assert other.clock == 1

    @pytest.mark.parametrize(
        "wrong", [torch.tensor([-1]), torch.tensor([1.0]), torch.tensor([1, 2]), torch.tensor(1)]
    )
    def test_a_wrong_count_changes_nothing(self, wrong):
        table = make(eviction=EvictionSpec(max_unseen=5, every=3))
        self.push(table, 1)
        with pytest.raises(ValueError, match="pushes"):
            table.load_state_dict({**table.state_dict(), "pushes": wrong})
        assert table.state_dict()["pushes"].tolist() == [1]

    def test_only_tables_with_searches_have_the_count(self):
        for eviction in (None, EvictionSpec(max_unseen=5)):
            assert "pushes" not in make(eviction=eviction).state_dict()
