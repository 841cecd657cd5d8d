"""Reader decorators: what they give, how they fail, and that their threads end."""

import functools
import threading

import pytest

from fleetx.static.errors import EnforceNotMet, ReaderProcessError
from fleetx.static.readers.batch import batch
from fleetx.static.readers.decorator import (
    ComposeNotAligned,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    shuffle,
    xmap_readers,
)
from fleetx.static.readers.multiprocess import multiprocess_reader
from waiting import LIMIT, wait_until


def count(n):
    return lambda: iter(range(n))


def wait_for_threads_of(prefix):
    for thread in threading.enumerate():
        if thread.name.startswith(prefix):
            thread.join(timeout=LIMIT)
            assert not thread.is_alive()


def test_cache_reads_once():
    passes = []

    def reader():
        passes.append(1)
        yield from range(3)

    cached = cache(reader)
    assert [list(cached()), list(cached())] == [[0, 1, 2]] * 2
    assert passes == [1]


def test_map_chain_firstn_batch():
    assert list(map_readers(lambda a, b: a * b, count(4), count(3))()) == [0, 1, 4]
    assert list(chain(count(2), count(3))()) == [0, 1, 0, 1, 2]
    assert list(firstn(count(5), 2)()) == [0, 1]
    assert list(firstn(count(1), 2)()) == [0]
    assert list(batch(count(5), 2)()) == [[0, 1], [2, 3], [4]]
    assert list(batch(count(5), 2, drop_last=True)()) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("size", [0, -3])
def test_batch_size_must_be_positive(size):
    with pytest.raises(ValueError, match="batch_size should be a positive integer"):
        batch(count(1), size)


@pytest.mark.parametrize("size", [0, 1, 3, 10, 100])
def test_shuffle_keeps_all_samples_within_its_buffer(size):
    result = list(shuffle(count(10), size)())
    assert sorted(result) == list(range(10))
    for start in range(0, 10, max(size, 1)):
        stop = start + max(size, 1)
        assert sorted(result[start:stop]) == list(range(start, min(stop, 10)))


def test_compose_joins_tuples_and_checks_lengths():
    pairs = lambda: iter([(1, 2), (3, 4)])  # noqa: E731
    assert list(compose(pairs, count(2))()) == [(1, 2, 0), (3, 4, 1)]
    got = []
    with pytest.raises(ComposeNotAligned, match=r"\[1\]"):
        got.extend(compose(count(3), count(2))())
    assert list(compose(count(3), count(2), check_alignment=False)()) == [(0, 0), (1, 1)]


@pytest.mark.parametrize("size", [0, 1, 20])
def test_buffered(size):
    reader = buffered(count(10), size)
    assert [list(reader()), list(reader())] == [list(range(10))] * 2


LAZY = {
    "batch": lambda reader: batch(reader, 2),
    "buffered": lambda reader: buffered(reader, 2),
    "chain": chain,
    "firstn": lambda reader: firstn(reader, 2),
    "map_readers": lambda reader: map_readers(str, reader),
}


@pytest.mark.parametrize("name", LAZY)
def test_reading_begins_with_the_first_sample(name):
    begun = []

    def reader():
        begun.append(1)
        yield from range(4)

    running = LAZY[name](reader)()
    threads = threading.active_count()
    assert not begun
    next(running)
    assert begun == [1]
    running.close()
    wait_until(lambda: threading.active_count() == threads, "threads that read to end")


def test_buffered_raises_the_original_error():
    error = OSError("disk")

    def reader():
        yield 1
        raise error

    running = buffered(reader, 4)()
    assert next(running) == 1
    with pytest.raises(OSError, match="disk") as info:
        next(running)
    assert info.value is error
    assert info.traceback[-1].name == "reader"


@pytest.mark.parametrize("order", [True, False])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("size", [0, 1, 8])
def test_xmap_gives_every_result(order, threads, size):
    reader = xmap_readers(lambda x: x + 1, count(25), threads, size, order)
    for _ in range(2):
        result = list(reader())
        assert (result if order else sorted(result)) == list(range(1, 26))


def test_xmap_keeps_order_when_a_later_sample_is_ready_first():
    second_done = threading.Event()

    def mapper(x):
        if x == 0:
            assert second_done.wait(LIMIT)
        else:
            second_done.set()
        return x

    assert list(xmap_readers(mapper, count(4), 2, 4, order=True)()) == [0, 1, 2, 3]


@pytest.mark.parametrize("order", [True, False])
def test_xmap_raises_what_the_mapper_or_the_reader_raised(order):
    def mapper(x):
        return 1 // (3 - x)

    def reader():
        yield 0
        raise OSError("disk")

    with pytest.raises(ZeroDivisionError) as info:
        list(xmap_readers(mapper, count(10), 2, 2, order)())
    assert info.traceback[-1].name == "mapper"
    with pytest.raises(OSError, match="disk"):
        list(xmap_readers(mapper, reader, 2, 2, order)())
    wait_for_threads_of("fleetx-xmap")


@pytest.mark.parametrize("order", [True, False])
def test_threads_end_when_the_consumer_stops_early(order):
    def endless():
        while True:
            yield 1

    for decorated in (xmap_readers(lambda x: x, endless, 3, 2, order), buffered(endless, 2)):
        for _ in decorated():
            break
    wait_for_threads_of("fleetx-xmap")
    wait_for_threads_of("fleetx-buffered")


def test_xmap_needs_a_thread():
    with pytest.raises(ValueError, match="process_num=0"):
        xmap_readers(lambda x: x, count(1), 0, 1)


SAMPLES = [([i], [i + 1, i + 2], i + 3) for i in range(90)]


@pytest.mark.parametrize("use_pipe", [True, False])
def test_multiprocess_reader_gives_all_samples(use_pipe):
    def part(index):
        yield from SAMPLES[index::3]

    merged = multiprocess_reader([functools.partial(part, i) for i in range(3)], use_pipe, 10)
    result = list(merged())
    assert sorted(result) == SAMPLES
    if use_pipe:
        assert result == SAMPLES  # in turn


@pytest.mark.parametrize("use_pipe", [True, False])
def test_multiprocess_reader_tells_what_was_raised(use_pipe):
    def broken():
        yield 1
        raise KeyError("mine")

    with pytest.raises(ReaderProcessError, match="in broken") as info:
        list(multiprocess_reader([broken, broken], use_pipe)())
    assert isinstance(info.value.__cause__, KeyError)
    assert isinstance(info.value, EnforceNotMet)


@pytest.mark.parametrize("use_pipe", [True, False])
def test_multiprocess_reader_notices_a_dead_process(use_pipe):
    def dies():
        import os

        yield 1
        os._exit(7)

    with pytest.raises(ReaderProcessError, match="exit code 7"):
        list(multiprocess_reader([dies], use_pipe)())


def test_multiprocess_reader_ends_its_processes_when_the_consumer_stops():
    import multiprocessing

    def endless():
        while True:
            yield 1

    for _ in multiprocess_reader([endless, endless])():
        break
    assert multiprocessing.active_children() == []
    with pytest.raises(AssertionError):
        multiprocess_reader([])
