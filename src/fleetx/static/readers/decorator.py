"""Reader decorators: functions from readers to a reader.

A reader is a function without arguments that returns an iterable of samples. Decorators that
use threads stop them when the consumer stops early, and propagate exceptions.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.readers.background_reading import BackgroundIterator, Channel, pump, start_thread
from fleetx.static.readers.batch import Reader, in_groups, lazily

_MISSING = object()


class ComposeNotAligned(ValueError):
    """Raised if composed readers have different numbers of samples."""


def cache(reader: Reader) -> Reader:
    """Read all samples once, now, and return a reader over them."""
    samples = tuple(reader())
    return lazily(lambda: samples)


def map_readers(func: Callable[..., Any], *readers: Reader) -> Reader:
    """Return a reader of `func(a, b, ...)`, an argument per reader; ends with the shortest."""
    return lazily(lambda: map(func, *(reader() for reader in readers)))


def shuffle(reader: Reader, buf_size: int) -> Reader:
    """Return a reader that shuffles samples in buffers of `buf_size`."""

    def shuffled() -> Iterator[Any]:
        for buffer in in_groups(reader(), max(buf_size, 1)):
            random.shuffle(buffer)
            yield from buffer

    return shuffled


def chain(*readers: Reader) -> Reader:
    """Return a reader that chains readers."""
    return lazily(lambda: itertools.chain.from_iterable(reader() for reader in readers))


def compose(*readers: Reader, check_alignment: bool = True) -> Reader:
    """Return a reader whose samples join one sample of each reader: (1, 2), 3 -> (1, 2, 3).

    Readers of different length raise ComposeNotAligned, or are cut to the shortest when
    `check_alignment` is False.
    """

    def composed() -> Iterator[tuple[Any, ...]]:
        running = [reader() for reader in readers]
        rows = (
            itertools.zip_longest(*running, fillvalue=_MISSING)
            if check_alignment
            else zip(*running, strict=False)
        )
        for row in rows:
            if any(part is _MISSING for part in row):
                ended = [i for i, part in enumerate(row) if part is _MISSING]
                raise ComposeNotAligned(
                    f"compose() got readers of different length: number {ended} (from 0) ended "
                    "before the others; pass check_alignment=False to truncate to the shortest."
                )
            joined: tuple[Any, ...] = ()
            for part in row:
                joined += part if isinstance(part, tuple) else (part,)
            yield joined

    return composed


def buffered(reader: Reader, size: int) -> Reader:
    """Return a reader that prefetches up to `size` samples in a thread (0: no limit)."""
    return lazily(lambda: BackgroundIterator(reader, size, name="fleetx-buffered"))


def firstn(reader: Reader, n: int) -> Reader:
    """Return a reader of the first `n` samples."""
    return lazily(lambda: itertools.islice(reader(), n))


def xmap_readers(
    mapper: Callable[[Any], Any],
    reader: Reader,
    process_num: int,
    buffer_size: int,
    order: bool = False,
) -> Reader:
    """Return a reader of `mapper(sample)`, computed by `process_num` threads.

    Input and output queues hold up to `buffer_size` samples. With `order` the results keep the
    order of the reader, otherwise they come as they are ready.
    """
    if process_num < 1:
        raise ValueError(f"xmap_readers needs at least one thread, not process_num={process_num}.")
    run = _map_in_order if order else _map_as_ready
    return lambda: run(mapper, reader, process_num, buffer_size)


def _map_in_order(
    mapper: Callable[[Any], Any], reader: Reader, threads: int, buffer_size: int
) -> Iterator[Any]:
    tasks: Channel[tuple[Future[Any], Any]] = Channel(buffer_size)
    results: Channel[Future[Any]] = Channel(buffer_size)

    def promises() -> Iterator[Future[Any]]:
        # A sample's future is queued before the sample is mapped, which keeps the order.
        for sample in reader():
            place: Future[Any] = Future()
            tasks.put((place, sample))
            yield place

    def read() -> None:
        pump(promises, results)
        tasks.finish()

    def work() -> None:
        for place, sample in tasks:
            try:
                place.set_result(mapper(sample))
            except BaseException as error:
                place.set_exception(error)

    try:
        start_thread(read, name="fleetx-xmap-read")
        for _ in range(threads):
            start_thread(work, name="fleetx-xmap-work")
        for place in results:
            yield place.result()
    finally:
        tasks.close()
        results.close()


def _map_as_ready(
    mapper: Callable[[Any], Any], reader: Reader, threads: int, buffer_size: int
) -> Iterator[Any]:
    tasks: Channel[Any] = Channel(buffer_size)
    results: Channel[Any] = Channel(buffer_size)
    lock = threading.Lock()
    working = threads

    def work() -> None:
        nonlocal working
        try:
            for sample in tasks:
                results.put(mapper(sample))
        except BaseException as error:
            results.finish(error)
            tasks.close()
        with lock:
            working -= 1
            if working == 0:
                results.finish()

    try:
        start_thread(pump, reader, tasks, name="fleetx-xmap-read")
        for _ in range(threads):
            start_thread(work, name="fleetx-xmap-work")
        yield from results
    finally:
        tasks.close()
        results.close()


export_defined(globals())
