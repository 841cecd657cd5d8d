"""Messages between single workers of a group, such as the stages of a pipeline.

A sender does not wait for the receiver while `deferring` is on: two workers that send to each other
would otherwise wait forever. Messages from one worker to another arrive in the order in which they
were sent. A worker that waits for one that is lost fails as in a collective.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fleetx.comm import world
from fleetx.comm.device import device_of_messages
from fleetx.comm.layout import Group
from fleetx.runtime import heartbeat


class Peers:
    """The other workers of a group, by their places in it."""

    def __init__(self, group: Group, back: Group | None = None) -> None:
        """`back` is a second group of the same workers, for messages to earlier places: NCCL keeps
        one order of messages between two workers, in which those of both directions could wait for
        each other."""
        self._group = group
        self._back = back or group
        self._pending: list[tuple[Any, Tensor]] = []  # messages, with the tensors that they read
        self._started = 0
        self._defers = False
        world.hold(self)

    def leave(self) -> None:
        """Release the groups."""
        self._pending.clear()
        self._group = Group(self._group.ranks, self._group.ranks[self._group.rank], None)
        self._back = self._group

    @classmethod
    def all_workers(cls) -> Peers:
        """Return the workers of the job by rank."""
        group = Group(range(world.world_size()), world.rank(), world.ring(0))
        return cls(group)

    def _rank(self, place: int) -> int:
        if not 0 <= place < self._group.size or place == self._group.rank:
            raise ValueError(
                f"worker {self._group.rank} cannot exchange a tensor with peer {place}: the peers "
                f"are the other workers from 0 to {self._group.size - 1}."
            )
        return self._group.ranks[place]

    def send(self, tensor: Tensor, to: int, *, with_shape: bool) -> None:
        """Send a tensor to the worker at a place; `with_shape` announces its shape first."""
        rank = self._rank(to)
        sent = tensor.detach().contiguous()
        sent = sent.to(device_of_messages(sent))
        group = self._group if to > self._group.rank else self._back
        if with_shape:
            outline = torch.tensor(sent.shape, dtype=torch.int64, device=sent.device)
            self._start(outline, rank, group)
        self._start(sent, rank, group)
        if not self._defers:
            self.finish()

    def _start(self, tensor: Tensor, rank: int, group: Group) -> None:
        with heartbeat.collective("message to another stage"):
            work = dist.isend(tensor, rank, group=group.process_group)
        self._pending.append((work, tensor))
        self._started += 1

    def receive(
        self,
        source: int,
        *,
        shape: Sequence[int],
        has_shape: bool,
        dtype: torch.dtype,
        device: torch.device,
    ) -> Tensor:
        """Return what the worker at a place sends. `shape` is its shape, of which only the length
        counts if the sender announces it (`has_shape`)."""
        rank = self._rank(source)
        group = (self._group if source < self._group.rank else self._back).process_group
        where = device_of_messages(torch.empty(0, device=device))
        with heartbeat.collective("message from another stage"):
            if has_shape:
                found = torch.empty(len(shape), dtype=torch.int64, device=where)
                dist.recv(found, rank, group=group)
                shape = found.tolist()
            result = torch.empty(tuple(shape), dtype=dtype, device=where)
            dist.recv(result, rank, group=group)
        return result.to(device)

    @contextmanager
    def deferring(self) -> Iterator[None]:
        """Do not wait for receivers inside the block, but at its end."""
        self._defers = True
        try:
            yield
            self.finish()
        finally:
            self._defers = False
            self._pending.clear()

    @property
    def started(self) -> int:
        """The number of messages so far."""
        return self._started

    def finish(self, until: int | None = None) -> None:
        """Wait until the messages have arrived, or the first `until` ones of all so far, and
        release their tensors."""
        count = len(self._pending)
        if until is not None:
            count = max(0, until - (self._started - count))
        pending, self._pending = self._pending[:count], self._pending[count:]
        if pending:
            with heartbeat.collective("messages to other stages"):
                for work, _ in pending:
                    work.wait()
