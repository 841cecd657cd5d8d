"""A reader that shards batches over the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fleetx.runtime import worker_environment
from fleetx.static.readers.batch import in_groups


def distributed_batch_reader(batch_reader: Callable[[], Any]) -> Callable[[], Iterator[Any]]:
    """Return a reader of every n-th batch, from this worker's rank on, for n workers.

    The last batches are dropped if they do not suffice for all workers, so that every worker runs
    the same number of steps.
    """
    worker = worker_environment.detect()

    def reader() -> Iterator[Any]:
        for group in in_groups(batch_reader(), worker.world_size, drop_last=True):
            yield group[worker.rank]

    return reader
