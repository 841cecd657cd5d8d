"""The index against a dict, and its errors for invalid arguments."""

import array
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetx.kernels import native
from fleetx.kernels.index import IdIndex, merge_rows, unique_ids

# Each test runs with the compiled modules and with their fallbacks.
pytestmark = pytest.mark.usefixtures("implementation")

# Few different ids, so that the same ones come again; some at the ends of the range.
IDS = st.one_of(st.integers(-20, 20), st.integers(-(2**63), 2**63 - 1))


def tensor(ids) -> torch.Tensor:
    return torch.tensor(ids, dtype=torch.int64)


class TestIndex:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.lists(st.tuples(st.sampled_from("ilr"), st.lists(IDS, max_size=120)), max_size=25))
    def test_does_what_a_dict_does(self, calls):
        index, model = IdIndex(), {}
        for call, ids in calls:
            if call == "i":
                rows, fresh = index.insert(tensor(ids))
                first = {}
                for position, key in enumerate(ids):
                    if key not in model:
                        first.setdefault(key, position)
                assert fresh.tolist() == list(first.values())
                for key, row in zip(ids, rows.tolist(), strict=True):
                    assert model.setdefault(key, row) == row
                assert len(set(model.values())) == len(model)
            elif call == "l":
                assert index.lookup(tensor(ids)).tolist() == [model.get(key, -1) for key in ids]
            else:
                assert index.remove(tensor(ids)) == len({key for key in ids if key in model})
                for key in ids:
                    model.pop(key, None)
            assert len(index) == len(model)
        ids, rows = index.items()
        assert rows.tolist() == sorted(model.values())
        assert dict(zip(ids.tolist(), rows.tolist(), strict=True)) == model

    def test_removed_rows_are_given_out_again(self):
        index = IdIndex()
        index.insert(torch.arange(1000))
        index.remove(torch.arange(0, 1000, 2))
        rows, _ = index.insert(torch.arange(5000, 5500))
        assert index.row_limit == 1000
        assert sorted(rows.tolist()) == list(range(0, 1000, 2))

    def test_many_ids_cost_little_memory(self):
        index = IdIndex()
        for start in range(0, 300_000, 7000):
            index.insert(torch.arange(start, start + 7000) * 2**20)
            if start > 10_000:
                assert index.nbytes <= 20.1 * len(index)

    def test_threads_may_share_it(self):
        index, ids = IdIndex(), torch.arange(40_000)
        found = []

        def work():
            for part in ids.split(20_000):  # long enough to run without the interpreter's lock
                found.append(index.insert(part)[0])
            found.append(index.lookup(ids))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(index) == 40_000
        final = index.lookup(ids)
        assert all(torch.equal(rows, final) for rows in found if len(rows) == 40_000)

    def test_wrong_types_are_named(self):
        with pytest.raises(TypeError, match="int64 tensor, not torch.float32"):
            IdIndex().lookup(torch.zeros(2))
        with pytest.raises(TypeError, match="not list"):
            IdIndex().lookup([1, 2])


class TestArguments:
    """What the other code of this package never does, but compiled code must survive."""

    def ids(self, count):
        return array.array("q", range(count))

    @pytest.mark.parametrize("method", ["lookup", "insert"])
    def test_lengths_must_agree(self, method):
        others = [self.ids(2)] * (1 if method == "lookup" else 2)
        with pytest.raises(ValueError, match="equal lengths"):
            getattr(native.Index(), method)(self.ids(3), *others)

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            (np.zeros(3), TypeError),
            (np.zeros(3, dtype=np.int32), TypeError),
            (np.zeros((3, 3), dtype=np.int64)[:, 1], ValueError),  # not contiguous
            (b"abc", TypeError),
            (None, TypeError),
        ],
    )
    def test_only_64_bit_integers_in_one_piece(self, given, error):
        for call in (
            lambda: native.Index().lookup(given, self.ids(3)),
            lambda: native.Index().remove(given),
            lambda: native.unique(given, self.ids(3), self.ids(3)),
            lambda: native.route(given, 2, self.ids(3)),
        ):
            with pytest.raises((error, BufferError)):
                call()

    def test_results_need_memory_that_can_be_written(self):
        closed = memoryview(bytes(24)).cast("q")
        with pytest.raises(BufferError):
            native.Index().lookup(self.ids(3), closed)

    def test_counts_are_checked(self):
        with pytest.raises(ValueError, match="there must be a server"):
            native.route(self.ids(2), 0, self.ids(2))
        with pytest.raises(ValueError, match="every server"):
            native.split(self.ids(2), self.ids(2), self.ids(0))
        index = native.Index()
        index.insert(self.ids(3), self.ids(3), self.ids(3))
        with pytest.raises(ValueError, match="must have 3 elements"):
            index.ids_by_row(self.ids(2), bytearray(3))


class TestUnique:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.lists(IDS, max_size=200))
    def test_first_appearance_and_inverse(self, ids):
        found, inverse = unique_ids(tensor(ids))
        assert found.tolist() == list(dict.fromkeys(ids))
        assert found[inverse].tolist() == ids

    def test_rows_of_equal_ids_are_added(self):
        grads = torch.arange(8, dtype=torch.float64).reshape(4, 2)
        ids, sums, counts = merge_rows(tensor([7, 3, 7, 7]), grads)
        assert ids.tolist() == [7, 3]
        assert sums.tolist() == [[10.0, 13.0], [2.0, 3.0]]
        assert counts.tolist() == [3, 1]
