"""Division of gradients into buckets, to send few large messages instead of many small ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

DEFAULT_MB = 32.0
"""The default size of a bucket."""
FIRST_MB = 1.0
"""The size of the first bucket."""


@dataclass(frozen=True)
class Bucket:
    """Tensors that are sent together: their positions in the list, all of one type."""

    members: tuple[int, ...]
    dtype: torch.dtype
    elements: int


def growing_limits(first_mb: float, limit_mb: float) -> list[float]:
    """Return the sizes of the first buckets, doubling up to the limit."""
    sizes = []
    while first_mb < limit_mb:
        sizes.append(first_mb)
        first_mb *= 2
    return [*sizes, limit_mb]


def make_buckets(
    tensors: Sequence[torch.Tensor],
    *,
    limit_mb: float = DEFAULT_MB,
    first_mb: float = FIRST_MB,
    last_mb: float = 1.0,
    limit_count: int = 0,
) -> list[Bucket]:
    """Divide tensors into buckets, in the order in which their gradients become ready.

    Args:
        tensors: the parameters, in the order in which their gradients become ready.
        limit_mb: a bucket is closed when it reaches this size.
        first_mb: the first bucket is closed at this size and each following one at twice the
        previous size, up to the limit: communication starts early and is never idle for long.
        last_mb: the last bucket, which cannot overlap with backward, is kept about this small.
        limit_count: a bucket is closed when it has this many tensors; 0 for no limit.
    """
    limits = [mb * 2**20 for mb in growing_limits(first_mb, limit_mb)]
    last = last_mb * 2**20
    total = sum(t.numel() * t.element_size() for t in tensors)
    buckets: list[Bucket] = []
    open_buckets: dict[torch.dtype, list[int]] = {}
    sizes: dict[torch.dtype, float] = {}
    done = 0.0

    def close(dtype: torch.dtype) -> None:
        members = open_buckets.pop(dtype)
        sizes.pop(dtype)
        elements = sum(tensors[i].numel() for i in members)
        buckets.append(Bucket(tuple(members), dtype, elements))

    for i, tensor in enumerate(tensors):
        size = tensor.numel() * tensor.element_size()
        members = open_buckets.setdefault(tensor.dtype, [])
        members.append(i)
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0.0) + size
        done += size
        full = sizes[tensor.dtype] >= limits[min(len(buckets), len(limits) - 1)]
        full = full or bool(limit_count and len(members) >= limit_count)
        # The rest fits into the last bucket: send the current one, so that it overlaps.
        ends = total - done <= last < total - done + size and done < total
        if full or ends:
            close(tensor.dtype)
    for dtype in list(open_buckets):
        close(dtype)
    return buckets
