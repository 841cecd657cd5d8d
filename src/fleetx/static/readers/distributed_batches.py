"""A reader of batches for one of several workers: each worker gets its own of every group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fleetx.runtime import worker_environment
from fleetx.static.readers.batch import in_groups


def distributed_batch_reader(batch_reader: Callable[[], Any]) -> Callable[[], Iterator[Any]]:
    """Return a reader of every n-th batch, from this worker's rank on, for n workers.

    Batches at the end that do not suffice for all workers are left out, so that every worker takes
    the same number of steps.
    """
    worker = worker_environment.detect()

    def reader() -> Iterator[Any]:
        for group in in_groups(batch_reader(), worker.world_size, drop_last=True):
            yield group[worker.rank]

    return reader
