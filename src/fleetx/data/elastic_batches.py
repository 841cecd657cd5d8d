"""Sharding of an epoch's samples over a changing number of workers.

The samples of an epoch have one order, and completed steps have used a prefix of it. The next step
takes the samples that follow, divided evenly among the current workers. So every sample is used
once, whichever workers join and leave, and the position is two numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Share:
    """A worker's part of a step."""

    samples: list[int]
    """The indices of its samples; one of weight zero if there are fewer samples than workers."""
    count: int
    """Samples that count."""
    total: int
    """Samples of all workers in the step."""

    def parts(self, most: int) -> list[Share]:
        """Split it into parts of at most so many samples; the last one completes the step."""
        starts = range(0, len(self.samples), most)
        samples = [self.samples[start : start + most] for start in starts]
        counts = [len(part) if self.count else 0 for part in samples]
        totals = [0] * (len(samples) - 1) + [self.total]
        return [Share(*part) for part in zip(samples, counts, totals, strict=True)]


@dataclass(frozen=True, kw_only=True)
class EpochPlan:
    """How to divide epochs of `length` samples into steps."""

    length: int
    batch_size: int
    keeps_global: bool
    """`batch_size` is that of all workers together, independent of their number."""
    shuffle: bool
    seed: int
    most_at_once: int | None = None
    """The maximum number of samples that a worker computes at once; more are split."""

    def order(self, epoch: int) -> list[int]:
        """Return the order of the samples in an epoch, the same on all workers."""
        if not self.shuffle:
            return list(range(self.length))
        generator = torch.Generator().manual_seed(self.seed + epoch)
        return torch.randperm(self.length, generator=generator).tolist()

    def total(self, used: int, size: int) -> int:
        """Return the number of samples in the step after `used` ones, with `size` workers."""
        wanted = self.batch_size if self.keeps_global else self.batch_size * size
        return min(wanted, self.length - used)

    def shares(self, epoch: int, used: int, rank: int, size: int) -> Iterator[Share]:
        """Yield a worker's batches for the remaining steps of an epoch."""
        order = self.order(epoch)
        while used < self.length:
            total = self.total(used, size)
            count, rest = divmod(total, size)
            start = used + rank * count + min(rank, rest)
            count += rank < rest
            samples = order[start : start + count] if count else [order[used]]
            share = Share(samples, count, total)
            yield from [share] if self.most_at_once is None else share.parts(self.most_at_once)
            used += total
