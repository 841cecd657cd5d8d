"""Grouping the samples of a reader into mini-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

Reader = Callable[[], Iterable[Any]]


def batch(
    reader: Reader, batch_size: int, drop_last: bool = False
) -> Callable[[], Iterator[list[Any]]]:
    """Return a reader of lists of `batch_size` samples.

    The last list may be shorter; with `drop_last` it is left out then.
    """
    size = int(batch_size)
    if size <= 0:
        raise ValueError(f"batch_size should be a positive integer, but got batch_size={size}.")

    def batch_reader() -> Iterator[list[Any]]:
        samples: list[Any] = []
        for sample in reader():
            samples.append(sample)
            if len(samples) == size:
                yield samples
                samples = []
        if samples and not drop_last:
            yield samples

    return batch_reader
