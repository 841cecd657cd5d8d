"""Sums over all workers that travel as rounded blocks, of which each worker adds up a share.

    1. every worker sends each other one the message of that worker's share
    2. every worker adds up its share, rounds the sum, and sends it to all others

With n workers, 2 (n - 1) / n messages of a whole tensor leave each, instead of n - 1 if all gather
the messages of all; the sum is rounded a second time. The second step needs no action of the
training: a thread runs both, with a group of its own, since collectives of two threads on one group
would be matched with each other in any order. It is Gloo on every device and sends CPU memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import Tensor

from fleetx.comm import world
from fleetx.kernels import rounded_blocks
from fleetx.kernels.rounded_blocks import BLOCK, message_bytes


def shares_of(entries: int, workers: int) -> list[slice]:
    """Return the entries that each worker adds up: whole blocks, as many each, the last ones
    fewer."""
    most = -(-entries // (BLOCK * workers)) * BLOCK
    return [slice(min(i * most, entries), min((i + 1) * most, entries)) for i in range(workers)]


class ShareSums:
    """Sums in the background, one after another; all workers must start them in the same order."""

    def __init__(self) -> None:
        self._group: dist.ProcessGroup | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="share sums")
        world.hold(self)
        # If the rendezvous is deferred, the first sum triggers it and creates the group.
        if dist.is_initialized():
            self._make_group()

    def _make_group(self) -> None:
        if self._group is None and world.is_connected():
            world.meet()
            self._group = dist.new_group(backend="gloo", timeout=world.timeout())

    def start(
        self, parts: Sequence[Tensor], share: Tensor, bits: int, tail: Tensor
    ) -> Future[list[Tensor]]:
        """Start a sum.

        Args:
            parts: the messages of this worker's entries, one for each share.
            share: what this worker's share lost so far in step 2; the loss of this sum replaces it.
            bits: bits per entry.
            tail: bytes that all workers get as they are.

        Returns:
            A future of the messages of all shares, each followed by the tail of the worker that
            added it up.
        """
        self._make_group()
        return self._pool.submit(self._sum, parts, share, bits, tail)

    def _sum(self, parts: Sequence[Tensor], share: Tensor, bits: int, tail: Tensor) -> list[Tensor]:
        lost = share.cpu()  # the same memory, unless it is a GPU's
        total = torch.empty_like(lost)
        size = message_bytes(lost.numel(), bits)
        arrived = self._swap([part.cpu() for part in parts], size)
        rounded_blocks.add_messages(total, bits, arrived)
        message = torch.cat([rounded_blocks.take_message(lost, bits, total), tail.cpu()])
        if lost is not share:
            share.copy_(lost)
        sizes = [part.numel() + tail.numel() for part in parts]
        return self._swap([message] * len(parts), sizes)

    def _swap(self, messages: Sequence[Tensor], sizes: int | Sequence[int]) -> list[Tensor]:
        """Send each worker its message; return those for this one, of these sizes, by rank."""
        if isinstance(sizes, int):
            sizes = [sizes] * len(messages)
        if self._group is None:
            return list(messages)
        sent = torch.cat(list(messages))
        arrived = torch.empty(sum(sizes), dtype=torch.uint8, device=sent.device)
        lengths = [each.numel() for each in messages]
        dist.all_to_all_single(arrived, sent, list(sizes), lengths, group=self._group)
        return list(arrived.split(list(sizes)))

    def leave(self) -> None:
        """End the thread and release the group."""
        global _of_all
        self._pool.shutdown()
        self._group = None
        _of_all = None


_of_all: ShareSums | None = None


def share_sums() -> ShareSums:
    """Return the sums of this process: a session's last one may still be in flight when the next
    session starts its first, and a group stays until the process leaves the world."""
    global _of_all
    _of_all = _of_all or ShareSums()
    return _of_all
