"""Reading ahead: order, bounds, errors, and threads that end."""

import gc
import subprocess
import sys
import threading

import pytest

import warm_start
from fleetx.static.readers.background_reading import BackgroundIterator, Channel
from waiting import LIMIT


def test_all_items_arrive_in_order():
    assert list(BackgroundIterator(lambda: range(100), 3)) == list(range(100))


def test_thread_runs_at_most_capacity_ahead():
    made = []
    asked = threading.Semaphore(0)

    def source():
        for i in range(10):
            made.append(i)
            asked.release()
            yield i

    items = BackgroundIterator(source, 2)
    for _ in range(3):  # two in the queue, one waiting for room
        assert asked.acquire(timeout=LIMIT)
    assert made == [0, 1, 2]
    assert list(items) == list(range(10))


def test_error_is_the_same_object_with_its_own_traceback_after_earlier_items():
    error = KeyError("mine")

    def source():
        yield 1
        raise error

    items = BackgroundIterator(source, 1)
    assert next(items) == 1
    for _ in range(2):  # the error stays until the reader is dropped, and does not grow
        with pytest.raises(KeyError) as info:
            next(items)
        assert info.value is error
        assert info.traceback[-1].name == "source"


def test_close_stops_the_thread_and_runs_the_clean_up_of_the_source():
    cleaned = threading.Event()

    def source():
        try:
            while True:
                yield 0
        finally:
            cleaned.set()

    items = BackgroundIterator(source, 1)
    next(items)
    items.close()
    assert cleaned.is_set()
    assert not items._thread.is_alive()
    with pytest.raises(StopIteration):
        next(items)


def test_a_dropped_iterator_ends_its_thread():
    def source():
        while True:
            yield 0

    items = BackgroundIterator(source, 1)
    thread = items._thread
    next(items)
    del items
    gc.collect()
    thread.join(timeout=LIMIT)
    assert not thread.is_alive()


@pytest.mark.slow
def test_a_running_reader_does_not_keep_or_crash_the_interpreter():
    code = (
        "from fleetx.static.readers.background_reading import BackgroundIterator\n"
        "import itertools\n"
        "it = BackgroundIterator(itertools.count, 2)\n"
        "print(next(it))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=warm_start.environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_channel_refuses_items_after_close():
    channel = Channel(1)
    assert channel.put(1)
    channel.close()
    assert not channel.put(2)
