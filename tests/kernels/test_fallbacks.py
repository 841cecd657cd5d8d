"""The compiled index and row store and their fallbacks: the same bits, whatever is called."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetx.kernels import index_in_numpy, rows_in_numpy

# Few different ids, so that the same ones come again; some at the ends of the range.
IDS = st.lists(st.one_of(st.integers(-20, 20), st.integers(-(2**63), 2**63 - 1)), max_size=150)
# Numbers that cannot be added without rounding, and those that are no numbers.
NUMBERS = st.floats(width=32, allow_nan=False)


@pytest.fixture(scope="module")
def index(compiled_modules):
    return compiled_modules[0], index_in_numpy


@pytest.fixture(scope="module")
def rows(compiled_modules):
    return compiled_modules[1], rows_in_numpy


def array(values, dtype=np.int64):
    return np.array(values, dtype)


def of_both(modules, call):
    """Return the bytes of the arrays that `call` fills or returns, or its error, of each module."""
    results = []
    for module in modules:
        try:
            found = call(module)
            results.append([(each.dtype, each.tobytes()) for each in found])
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            results.append(type(error))
    return results


def assert_same(modules, call):
    mine, other = of_both(modules, call)
    assert mine == other


@settings(max_examples=80, deadline=None)
@given(calls=st.lists(st.tuples(st.sampled_from("iilrr"), IDS), max_size=20))
def test_an_index_gives_out_the_same_rows(index, calls):
    def run(module):
        made, found = module.Index(), []
        for call, given_ids in calls:
            ids = array(given_ids)
            out, fresh = np.zeros_like(ids), np.zeros_like(ids)
            if call == "i":
                count = made.insert(ids, out, fresh)
                found += [out, fresh[:count]]
            elif call == "l":
                made.lookup(ids, out)
                found.append(out)
            else:
                found.append(array([made.remove(ids)]))
            found.append(array([len(made), made.rows]))
        ids, live = np.empty(made.rows, np.int64), np.empty(made.rows, bool)
        made.ids_by_row(ids, live)
        return [*found, ids, live]

    assert_same(index, run)


def test_an_index_that_grows_and_shrinks(index):
    generator = np.random.default_rng(1)
    batches = [generator.integers(0, 9000, 3000) for _ in range(12)]

    def run(module):
        made, found = module.Index(), []
        for batch in batches:
            out, fresh = np.zeros_like(batch), np.zeros_like(batch)
            count = made.insert(batch, out, fresh)
            found += [out.copy(), fresh[:count]]
            made.remove(batch[::2].copy())
            made.lookup(batch, out)
            found.append(out)
            assert made.nbytes <= 20.1 * 9000 + 4 * 2 * 9000
        return found

    assert_same(index, run)


@settings(max_examples=80, deadline=None)
@given(ids=IDS, servers=st.integers(1, 2**32 - 1), few=st.integers(1, 7))
def test_ids_without_repetitions_and_their_servers(index, ids, servers, few):
    def run(module):
        given_ids = array(ids)
        found, inverse, one, many = (np.zeros_like(given_ids) for _ in range(4))
        count = module.unique(given_ids, found, inverse)
        module.route(given_ids, servers, many)
        counts = np.empty(few, np.int64)
        module.split(given_ids, one, counts)
        return [found[:count], inverse, many, one, counts]

    assert_same(index, run)


@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    kind=st.sampled_from([np.float32, np.float64]),
    columns=st.integers(1, 5),
    limit=st.sampled_from([1, 40, 400_000]),
)
def test_a_store_adds_in_the_same_order(rows, data, kind, columns, limit):
    size = np.dtype(kind).itemsize
    offset = data.draw(st.integers(0, columns - 1))
    width = data.draw(st.integers(1, columns - offset))
    numbers = data.draw(st.lists(st.integers(-1, limit), max_size=40))
    values = data.draw(
        st.lists(NUMBERS, min_size=width * len(numbers), max_size=width * len(numbers))
    )
    scale = data.draw(st.floats(-3, 3, width=16))

    def run(module):
        store = module.RowStore(columns * size)
        store.grow(limit)
        field = (array(numbers), offset * size, width * size)
        given_values = array(values, kind)
        known = np.abs(field[0])
        found = []
        for at in (known % limit, field[0]):
            # Rows of -1 and those outside are refused by both, or by none.
            for call in (
                lambda at=at: store.scatter(at, *field[1:], given_values),
                lambda at=at: store.add(at, *field[1:], given_values, scale),
                lambda at=at: store.add(at, *field[1:], given_values, math.pi),
            ):
                try:
                    call()
                except IndexError:
                    found.append(array([1]))
            out = np.full((len(numbers), columns), 7, kind)
            store.gather(np.minimum(at, limit - 1), 0, columns * size, out)
            found.append(out)
        found.append(array([store.limit]))
        return found

    assert_same(rows, run)


@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    kind=st.sampled_from([np.float32, np.float64]),
    numbers=st.lists(st.integers(-1, 6), max_size=30),
    width=st.integers(0, 3),
)
def test_rows_of_an_array_are_added_in_the_same_order(rows, data, kind, numbers, width):
    count = width * len(numbers)
    values = data.draw(st.lists(NUMBERS, min_size=count, max_size=count))

    def run(module):
        out = np.ones((6, max(width, 1)), kind)
        module.add_rows(array(numbers), array(values, kind), out)
        return [out]

    assert_same(rows, run)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    rule=st.sampled_from(["adagrad", "adam", "adam, shared", "ftrl"]),
    kind=st.sampled_from([np.float32, np.float64]),
    columns=st.sampled_from([1, 3, 8, 16, 17, 32, 64]),
)
def test_updates_of_rows_have_the_same_bits(rows, data, rule, kind, columns):
    numbers = data.draw(st.lists(st.integers(0, 50), unique=True, max_size=40))
    dice = np.random.default_rng(data.draw(st.integers(0, 99)))
    scales = data.draw(st.sampled_from([1.0, 1e-30, 1e30]))
    powers = [0.81, 0.99] if rule == "adam, shared" else [math.nan] * 2
    given_settings, state = {
        "adagrad": ([0.1, 1e-6], 1),
        "adam": ([0.1, 0.9, 0.999, 1e-8, data.draw(st.integers(0, 1)), *powers], 2),
        "ftrl": ([0.5, data.draw(st.sampled_from([1e-10, 0.5])), 0.2], 2),
    }[rule.split(",")[0]]
    width = columns * (1 + state) + (2 if rule == "adam" else 0)
    first = dice.random((51, width)).astype(kind)
    steps = [(dice.normal(size=(len(numbers), columns)) * scales).astype(kind) for _ in range(3)]

    def run(module):
        store = module.RowStore(width * first.itemsize)
        store.grow(51)
        store.scatter(np.arange(51), 0, width * first.itemsize, first)
        for grads in steps:
            store.update(rule.split(",")[0], array(numbers), grads, np.array(given_settings))
        out = np.empty_like(first)
        store.gather(np.arange(51), 0, width * first.itemsize, out)
        # What a number that is none looks like is the processor's affair.
        return [np.nan_to_num(out, nan=9.0)]

    assert_same(rows, run)


@settings(max_examples=60, deadline=None)
@given(ids=IDS, seed=st.integers(0, 2**64 - 1), columns=st.integers(0, 9))
def test_random_numbers_have_the_same_bits(rows, ids, seed, columns):
    def run(module):
        out = np.empty((len(ids), columns))
        module.uniform(seed, array(ids), out)
        values = out.copy()
        module.normal(values)
        return [out, values]

    assert_same(rows, run)


def test_normal_values_have_the_same_bits_from_end_to_end(rows):
    ends = [0.0, 5e-324, 1e-300, 1e-16, 0.02425, 0.5, 1 - 0.02425, 1 - 1e-16, 1.0, -1.0, 2.0]
    some = np.random.default_rng(1).random(100_000)

    def run(module):
        values = np.concatenate([array(ends, np.float64), some])
        module.normal(values)
        # What a number that is none looks like is the processor's affair.
        return [np.nan_to_num(values, nan=9.0)]

    assert_same(rows, run)


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_numbers_between_two_places_in_memory_are_refused(compiled_modules, dtype):
    _index, _rows = compiled_modules
    shifted = np.frombuffer(bytearray(33), np.uint8)[1:].view(dtype)
    call = _index.Index().remove if dtype is np.int64 else _rows.normal
    with pytest.raises(ValueError, match="must begin at a multiple of 8 bytes"):
        call(shifted)
    if dtype is np.float64:
        with pytest.raises(ValueError, match="values must begin at a multiple of 8"):
            _rows.add_rows(array([0]), shifted, np.zeros(4))
