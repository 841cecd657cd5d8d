"""Which images a worker reads in an epoch, and in which order.

Every worker computes the whole order, which depends on the seed and the epoch only, and takes every
N-th image of it. What all workers have read is then always a beginning of the order, so that a
job can go on in the middle of an epoch, even with another number of workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetx.runtime import membership

Array = np.ndarray[Any, Any]


def once_order(count: int, *, seed: int, epoch: int, shuffle: bool) -> Array:
    """Return the images of an epoch, each once."""
    if not shuffle:
        return np.arange(count)
    # RandomState's numbers are the same in every version of NumPy.
    return np.random.RandomState([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, epoch]).permutation(
        count
    )


def paddle_order(count: int, *, epoch: int, shuffle: bool, world_size: int) -> Array:
    """Return the images of an epoch in the order of Paddle's reader.

    The shuffle's seed is the epoch; images from the beginning fill up the end so that every worker
    has as many.
    """
    order = np.arange(count)
    if shuffle:
        np.random.RandomState(epoch).shuffle(order)
    return np.resize(order, paddle_count(count, world_size))


def paddle_count(count: int, world_size: int) -> int:
    """Return how many images Paddle's reader makes of `count`: as many for every worker."""
    return -(-count // world_size) * world_size


def shard(
    order: Array, *, rank: int, world_size: int, start: int = 0, even: int | None = None
) -> Array:
    """Return a worker's part of what comes behind the first `start` images of the order.

    With `even`, all workers get the same number of images, a multiple of `even`; the rest is left.
    """
    rest = order[start:]
    return rest[: _used(len(rest), world_size, even)][rank::world_size]


def shard_size(count: int, *, rank: int, world_size: int, even: int | None = None) -> int:
    """Return how many of `count` images a worker's part has."""
    return len(range(rank, _used(count, world_size, even), world_size))


def _used(count: int, world_size: int, even: int | None) -> int:
    return count if even is None else count - count % (even * world_size)


def place_in_job() -> tuple[int, int]:
    """Return fleet's worker number and number of workers; 0 and 1 where it is not initialised."""
    place = membership.own()
    return (0, 1) if place is None else (place.worker_index(), place.worker_num())
