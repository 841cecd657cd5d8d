"""Dividing gradients into buckets, so that few large messages travel instead of many small ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

DEFAULT_MB = 32.0
"""The size of a bucket where nobody has asked for another."""
FIRST_MB = 1.0
"""The size of the first bucket."""


@dataclass(frozen=True)
class Bucket:
    """Tensors that travel together: their positions in the list, all of one type."""

    members: tuple[int, ...]
    dtype: torch.dtype
    elements: int


def growing_limits(first_mb: float, limit_mb: float) -> list[float]:
    """Return the sizes of the first buckets, each twice the one before; the last is the limit."""
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
    """Divide tensors, in the order in which their gradients become ready, into buckets.

    Args:
        tensors: the parameters, the one whose gradient is ready first in front.
        limit_mb: a bucket is closed when it has reached this size.
        first_mb: the first bucket is closed at this size and the following ones at twice that of
            the one before, up to the limit: the network has work early and never waits long.
        last_mb: the last bucket, which nothing can hide, is kept about this small.
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
        # What is left fits into the last bucket: send what is there, so that it overlaps.
        ends = total - done <= last < total - done + size and done < total
        if full or ends:
            close(tensor.dtype)
    for dtype in list(open_buckets):
        close(dtype)
    return buckets


def fusion_message(before: int, after: int) -> str:
    """Return the line that says how many all-reduces there were and how many remain."""
    return (
        f"Find all_reduce operators: {before}. To make the speed faster, some all_reduce ops are "
        f"fused during training, after fusion, the number of all_reduce ops is {after}."
    )
