"""A reader of batches for one of several workers: each worker gets its own of every group."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from fleetx.runtime import worker_environment


def distributed_batch_reader(batch_reader: Callable[[], Any]) -> Callable[[], Iterator[Any]]:
    """Return a reader of every n-th batch, from this worker's rank on, for n workers.

    Batches at the end that do not suffice for all workers are left out, so that every worker takes
    the same number of steps.
    """
    worker = worker_environment.detect()

    def reader() -> Iterator[Any]:
        batches = iter(batch_reader())
        while True:
            group = list(itertools.islice(batches, worker.world_size))
            if len(group) < worker.world_size:
                return
            yield group[worker.rank]

    return reader
