"""Grouping the samples of a reader into mini-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

Reader = Callable[[], Iterable[Any]]
T = TypeVar("T")


def in_groups(items: Iterable[T], size: int, drop_last: bool = False) -> Iterator[list[T]]:
    """Yield lists of `size` items; `drop_last` drops a shorter last one."""
    source = iter(items)
    while group := list(islice(source, size)):
        if len(group) == size or not drop_last:
            yield group
        del group  # not kept in memory while the next one is read


def lazily(start: Callable[[], Iterable[T]]) -> Callable[[], Iterator[T]]:
    """Return a reader that starts when its first sample is requested, not when it is called."""

    def read() -> Iterator[T]:
        yield from start()

    return read


def batch(
    reader: Reader, batch_size: int, drop_last: bool = False
) -> Callable[[], Iterator[list[Any]]]:
    """Return a reader of lists of `batch_size` samples.

    The last list may be shorter; `drop_last` drops it in that case.
    """
    size = int(batch_size)
    if size <= 0:
        raise ValueError(f"batch_size should be a positive integer, but got batch_size={size}.")
    return lazily(lambda: in_groups(reader(), size, drop_last))
