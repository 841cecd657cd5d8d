"""The images that a worker reads in an epoch, and their order.

Every worker computes the whole order, which depends only on the seed and the epoch, and takes every
N-th image of it. The images read by all workers are therefore always a prefix of the order, so a
job can resume in the middle of an epoch, even with another number of workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetx.runtime import membership

Array = np.ndarray[Any, Any]


def once_order(count: int, *, seed: int, epoch: int, shuffle: bool) -> Array:
    """Return the images of an epoch, each of them once."""
    if not shuffle:
        return np.arange(count)
    # RandomState's numbers are the same in every version of NumPy.
    return np.random.RandomState([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, epoch]).permutation(
        count
    )


def paddle_order(count: int, *, epoch: int, shuffle: bool, world_size: int) -> Array:
    """Return the images of an epoch in the order of Paddle's reader.

    The shuffle's seed is the epoch; images from the beginning pad the end so that every worker has
    the same number.
    """
    order = np.arange(count)
    if shuffle:
        np.random.RandomState(epoch).shuffle(order)
    return np.resize(order, paddle_count(count, world_size))


def paddle_count(count: int, world_size: int) -> int:
    """Return the number of images after padding `count` for Paddle's reader."""
    return -(-count // world_size) * world_size


def shard(
    order: Array, *, rank: int, world_size: int, start: int = 0, even: int | None = None
) -> Array:
    """Return a worker's part of the images after the first `start` of the order.

    With `even`, all workers get the same number of images, a multiple of `even`; the rest is
    dropped.
    """
    rest = order[start:]
    return rest[: _used(len(rest), world_size, even)][rank::world_size]


def shard_size(count: int, *, rank: int, world_size: int, even: int | None = None) -> int:
    """Return how many of `count` images are in a worker's part."""
    return len(range(rank, _used(count, world_size, even), world_size))


def _used(count: int, world_size: int, even: int | None) -> int:
    return count if even is None else count - count % (even * world_size)


def place_in_job() -> tuple[int, int]:
    """Return fleet's rank and world size; 0 and 1 if it is not initialised."""
    place = membership.own()
    return (0, 1) if place is None else (place.worker_index(), place.worker_num())
