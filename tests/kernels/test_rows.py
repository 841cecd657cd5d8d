"""The row store: fields of rows in and out, and nothing outside of it."""

import array
import resource
import tempfile

import numpy as np
import pytest
import torch

from fleetx.kernels import native

# Each test runs with the compiled modules and with their fallbacks.
pytestmark = pytest.mark.usefixtures("implementation")


def test_fields_of_rows():
    store = native.RowStore(24)
    store.grow(3)
    rows = np.array([2, 0], dtype=np.int64)
    store.scatter(rows, 8, 16, np.array([[1.0, 2.0], [3.0, 4.0]]))
    out = np.full((4, 2), 9.0)
    store.gather(np.array([0, 1, 2, -1], dtype=np.int64), 8, 16, out)
    assert out.tolist() == [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0], [0.0, 0.0]]


def test_rows_stay_where_they_are_when_the_store_grows():
    store = native.RowStore(1 << 20)  # a megabyte: a few rows fill a block
    values = torch.arange(3, dtype=torch.int64)
    for row in range(20):
        store.grow(row + 1)
        store.scatter(array.array("q", [row]), (1 << 20) - 24, 24, (values + row).numpy())
    out = torch.empty(20, 3, dtype=torch.int64)
    store.gather(torch.arange(20).numpy(), (1 << 20) - 24, 24, out.numpy())
    assert torch.equal(out, torch.arange(20)[:, None] + values)
    assert store.limit >= 20


def test_many_rows_without_the_interpreters_lock():
    store = native.RowStore(8)
    store.grow(50_000)
    order = torch.randperm(50_000)
    store.scatter(order.numpy(), 0, 8, order.numpy())
    out = torch.empty(50_000, dtype=torch.int64)
    store.gather(torch.arange(50_000).numpy(), 0, 8, out.numpy())
    assert torch.equal(out, torch.arange(50_000))


@pytest.mark.parametrize("row", [-2, 2**40, 2**63 - 1, -(2**63)])
def test_rows_outside_are_refused(row):
    store = native.RowStore(8)
    store.grow(4)
    rows, values = array.array("q", [0, row]), array.array("q", [5, 5])
    with pytest.raises(IndexError, match="outside the store"):
        store.gather(rows, 0, 8, values)
    with pytest.raises(IndexError, match="outside the store"):
        store.scatter(rows, 0, 8, values)
    store.gather(array.array("q", [0]), 0, 8, out := array.array("q", [9]))
    assert out[0] == 0  # nothing was written before the refusal


def test_a_row_of_minus_one_is_not_written():
    store = native.RowStore(8)
    with pytest.raises(IndexError):
        store.scatter(array.array("q", [-1]), 0, 8, array.array("q", [5]))


@pytest.mark.parametrize(
    ("offset", "width", "size"),
    [(-1, 8, 8), (0, 0, 8), (8, 1, 1), (4, 8, 8), (2**62, 8, 8), (0, 2**62, 8), (0, 8, 9)],
)
def test_fields_outside_are_refused(offset, width, size):
    store = native.RowStore(8)
    store.grow(1)
    with pytest.raises(ValueError, match="bytes"):
        store.gather(array.array("q", [0]), offset, width, bytearray(size))


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="cannot have 0 bytes"):
        native.RowStore(0)
    with pytest.raises(ValueError, match="rows"):
        native.RowStore(8).grow(2**33)
    with pytest.raises(OverflowError):
        native.RowStore(8).grow(-1)


def test_random_numbers_depend_on_seed_id_and_column_only():
    ids = torch.tensor([5, -1, 2**63 - 1])
    out = torch.empty(3, 4, dtype=torch.float64)
    native.uniform(7, ids.numpy(), out.numpy())
    alone = torch.empty(1, 2, dtype=torch.float64)
    native.uniform(7, ids[1:2].clone().numpy(), alone.numpy())
    assert torch.equal(alone[0], out[1, :2])
    other = torch.empty_like(out)
    native.uniform(8, ids.numpy(), other.numpy())
    assert not (other == out).any()
    assert bool(((out > 0) & (out < 1)).all())
    with pytest.raises(ValueError, match="do not share"):
        native.uniform(0, ids.numpy(), torch.empty(4, dtype=torch.float64).numpy())
    with pytest.raises(TypeError, match="floating-point"):
        native.uniform(0, ids.numpy(), ids.numpy())


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_scaled_values_are_added_in_order(kind):
    size = np.dtype(kind).itemsize
    store = native.RowStore(3 * size)
    store.grow(4)
    rows = np.array([2, 0, 2])
    store.add(rows, size, 2 * size, np.arange(6, dtype=kind), -0.5)
    out = np.empty((4, 3), dtype=kind)
    store.gather(np.arange(4), 0, 3 * size, out)
    assert out.tolist() == [[0, -1.0, -1.5], [0, 0, 0], [0, -2.0, -3.0], [0, 0, 0]]
    with pytest.raises(IndexError):
        store.add(np.array([0, 1 << 30]), 0, size, np.ones(2, dtype=kind), 1.0)
    with pytest.raises(TypeError, match="float32 or float64"):
        store.add(rows, 0, size, np.ones(3, dtype=f"int{8 * size}"), 1.0)
    with pytest.raises(ValueError, match="whole"):
        store.add(rows, 1, size, np.ones(3, dtype=kind), 1.0)
    with pytest.raises(TypeError, match="scale"):
        store.add(rows, 0, size, np.ones(3, dtype=kind))
    store.gather(np.array([0]), 0, size, out[:1, :1].copy())
    assert out[0, 0] == 0


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_rows_of_an_array_are_added_up(kind):
    out = np.zeros((3, 2), dtype=kind)
    native.add_rows(np.array([2, 0, 2]), np.arange(6, dtype=kind), out)
    assert out.tolist() == [[2, 3], [0, 0], [4, 6]]
    native.add_rows(np.array([], dtype="int64"), np.array([], dtype=kind), out)
    with pytest.raises(IndexError):
        native.add_rows(np.array([0, 3]), np.ones(4, dtype=kind), out)
    with pytest.raises(ValueError, match="do not fit"):
        native.add_rows(np.array([0, 1]), np.ones(3, dtype=kind), out)
    with pytest.raises(TypeError):
        native.add_rows(np.array([0]), np.ones(2, dtype="int64"), out)
    assert out.tolist() == [[2, 3], [0, 0], [4, 6]]


def test_repeated_rows_are_found():
    store = native.RowStore(8)
    assert store.differ(np.array([], np.int64))
    store.grow(3_000_000)
    rows = np.random.default_rng(0).permutation(store.limit)[:20_000]
    for _ in range(2):  # what a call has marked does not count in the next one
        assert store.differ(rows)
        assert not store.differ(np.append(rows, rows[7]))
        assert not store.differ(np.array([5, 4, 5]))
        assert store.differ(np.array([5, 4, 6, 0, store.limit - 1]))
    for bad in (-1, store.limit):
        with pytest.raises(IndexError, match="outside the store"):
            store.differ(np.array([0, bad]))
        assert store.differ(np.array([0]))
    store.grow(store.limit + 1)
    assert not store.differ(np.array([store.limit - 1, 3, store.limit - 1]))


def test_updates_are_checked():
    store = native.RowStore(16)
    store.grow(4)
    rows, grads, settings = np.array([3, 0]), np.ones((2, 2), "float32"), np.array([0.1, 1e-6])
    for wrong, said in (
        (("adamax", rows, grads, settings), "no update adamax"),
        (("adagrad", rows, grads, settings[:1].copy()), "2 settings, not 1"),
        (("adagrad", rows, grads.astype("float64"), settings), "gradients of 32 bytes"),
        (("adagrad", rows, np.ones(3, "float32"), settings), "gradients of 12 bytes"),
        (("ftrl", rows, grads, np.ones(3)), "2 rows of 16 bytes"),
    ):
        with pytest.raises(ValueError, match=said):
            store.update(*wrong)
    with pytest.raises(IndexError, match="outside the store"):
        store.update("adagrad", np.array([0, store.limit]), grads, settings)
    with pytest.raises(IndexError, match="outside the store"):
        store.update("adagrad", np.array([0, -1]), grads, settings)
    with pytest.raises(TypeError, match="grads must be float32 or float64"):
        store.update("adagrad", rows, np.ones((2, 2), "int32"), settings)
    store.gather(np.arange(4), 0, 16, out := np.empty((4, 4), "float32"))
    assert not out.any()  # nothing was written before a refusal
    store.update("adagrad", np.array([], "int64"), np.empty((0, 2), "float32"), settings)
    store.update("adagrad", rows, grads, settings)
    store.gather(np.arange(4), 0, 16, out)
    assert out[:, 2:].tolist() == [[1, 1], [0, 0], [0, 0], [1, 1]]


class TestRowsInAFile:
    RECORD = 24
    BLOCK = 4096

    def store(self, folder):
        """A store with 170 rows in memory and the others in a file."""
        store = native.RowStore(self.RECORD, self.BLOCK)
        store.grow(1)
        with tempfile.TemporaryFile(dir=folder) as file:
            store.spill(file.fileno(), "the file")
        assert store.has_file
        return store

    def test_the_same_as_in_memory(self, tmp_path):
        """Whatever is called, and however often rows change places."""
        here, there = native.RowStore(self.RECORD), self.store(tmp_path)
        dice, settings = np.random.default_rng(1), np.array([0.1, 1e-6])
        for number in range(60):
            size = 30 * (number + 1)
            rows = dice.permutation(size)[: dice.integers(1, 400)]
            values = dice.normal(size=(len(rows), 3)).astype("float32")
            found = []
            for store in (here, there):
                store.grow(size)
                store.scatter(rows[::2].copy(), 4, 12, values[::2].copy())
                store.add(rows, 8, 12, values, 0.5)
                store.update("adagrad", rows, np.abs(values), settings)
                store.gather(rows - 1, 0, self.RECORD, out := np.empty((len(rows), 6), "float32"))
                found.append(out)
                store.gather(np.arange(size), 0, self.RECORD, out := np.empty((size, 6), "float32"))
                found.append(out)
            assert np.array_equal(found[0], found[2], equal_nan=True)
            assert np.array_equal(found[1], found[3], equal_nan=True)

    def test_a_batch_may_be_larger_than_the_memory(self, tmp_path):
        store, rows = self.store(tmp_path), np.random.default_rng(1).permutation(20_000)
        store.grow(20_000)
        for _ in range(3):
            store.add(rows, 16, 8, rows.astype("float64"), 1.0)
        store.gather(np.arange(20_000), 16, 8, out := np.empty(20_000))
        assert np.array_equal(out, 3 * np.arange(20_000))

    def test_a_file_that_cannot_grow_is_named_and_nothing_is_lost(self, tmp_path):
        store = self.store(tmp_path)
        store.grow(300)
        store.scatter(np.arange(300), 0, 8, np.arange(300))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
        try:
            with pytest.raises(OSError, match="File too large: 'the file'"):
                store.grow(10_000_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        store.gather(np.arange(300), 0, 8, out := np.empty(300, "int64"))
        assert out.tolist() == list(range(300))
        store.grow(100_000)
        store.gather(np.array([99_999]), 0, 8, out[:1])
        assert out[0] == 0

    def test_one_file_for_a_store_that_has_rows(self, tmp_path):
        with pytest.raises(RuntimeError, match="takes one file"):
            native.RowStore(8).spill(0, "a file")
        with pytest.raises(RuntimeError, match="takes one file"):
            self.store(tmp_path).spill(0, "a file")
        store = native.RowStore(8, 4096)
        store.grow(1)
        with pytest.raises(OSError, match="'no file'"):
            store.spill(10**6, "no file")


def test_normal_values_are_the_inverse_of_the_distribution():
    chances = torch.linspace(1e-12, 1 - 1e-12, 10_001, dtype=torch.float64)
    found = chances.clone()
    native.normal(found.numpy())
    assert torch.allclose(found, torch.special.ndtri(chances), rtol=2e-9, atol=1e-9)
