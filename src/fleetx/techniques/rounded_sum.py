"""Buckets of differences that travel as rounded blocks, during training.

What the rounding of a message loses is added to the next one. Small buckets that are not rounded
(statistics) ride behind the message: an exchange of their own costs each worker as much time on the
CPU as that of the differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import torch
from torch import Tensor

from fleetx.comm import world
from fleetx.comm.background_gather import BackgroundGather
from fleetx.comm.share_sums import ShareSums, shares_of
from fleetx.kernels import rounded_blocks
from fleetx.kernels.rounded_blocks import message_bytes
from fleetx.techniques.flat_bucket import RESIDUAL, SUM_RESIDUAL, FlatBucket

SMALL = 4096
"""Bytes of buckets that ride with a message; every worker sends them to all others."""


def rides(bucket: FlatBucket) -> bool:
    """Return whether a bucket is small enough to ride with a message."""
    return bucket.flat.numel() * bucket.flat.element_size() <= SMALL


class GatheredSum:
    """A sum in flight: all workers get the messages of all, and add them up by rank."""

    def __init__(self, bucket: FlatBucket, bits: int, riders: Sequence[FlatBucket]) -> None:
        message = rounded_blocks.take_message(bucket.memory(RESIDUAL), bits, bucket.flat)
        self._parts = bucket.flat, bits, message.numel(), riders
        self._gathered = BackgroundGather(torch.cat([message, _bytes_of(riders, message)]))

    def wait(self) -> None:
        """Wait; the bucket then holds the sum of what all messages stand for, and riders hold
        theirs."""
        flat, bits, size, riders = self._parts
        messages = self._gathered.wait()
        rounded_blocks.add_messages(flat, bits, [each[:size] for each in messages])
        _add_bytes(riders, [each[size:] for each in messages])


class SumOfShares:
    """A sum in flight of which each worker adds up a share, and rounds it again."""

    def __init__(
        self, bucket: FlatBucket, bits: int, riders: Sequence[FlatBucket], sums: ShareSums
    ) -> None:
        flat, residual = bucket.flat, bucket.memory(RESIDUAL)
        shares = shares_of(flat.numel(), world.world_size())
        parts = [rounded_blocks.take_message(residual[own], bits, flat[own]) for own in shares]
        mine = bucket.memory(SUM_RESIDUAL)[shares[world.rank()]]
        tail = _bytes_of(riders, parts[0])
        self._parts = flat, bits, shares, riders
        self._arriving: Future[list[Tensor]] = sums.start(parts, mine, bits, tail)

    def wait(self) -> None:
        """Wait; the bucket then holds what the rounded sum stands for, and riders their sums."""
        flat, bits, shares, riders = self._parts
        messages = [each.to(flat.device) for each in self._arriving.result()]
        tails = []
        for own, message in zip(shares, messages, strict=True):
            share = flat[own]
            size = message_bytes(share.numel(), bits)
            rounded_blocks.add_messages(share, bits, [message[:size]])
            tails.append(message[size:])
        _add_bytes(riders, tails)


def _bytes_of(riders: Sequence[FlatBucket], like: Tensor) -> Tensor:
    return torch.cat([like[:0], *(rider.flat.view(torch.uint8) for rider in riders)])


def _add_bytes(riders: Sequence[FlatBucket], tails: Sequence[Tensor]) -> None:
    """Set riders to the sums of what the workers sent."""
    done = 0
    for rider in riders:
        size = rider.flat.numel() * rider.flat.element_size()
        sent = torch.stack([tail[done : done + size] for tail in tails])
        torch.sum(sent.view(rider.flat.dtype), 0, out=rider.flat)
        done += size
