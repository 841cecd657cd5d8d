"""Gathering messages of all workers in the background."""

from __future__ import annotations

import torch
import torch.distributed as dist

from fleetx.comm import world


class BackgroundGather:
    """An all-gather in flight; all workers must start it together."""

    def __init__(self, message: torch.Tensor) -> None:
        self._parts = [message]
        self._work: dist.Work | None = None
        if world.is_connected():
            world.meet()
            self._parts = [torch.empty_like(message) for _ in range(world.world_size())]
            self._work = dist.all_gather(self._parts, message, group=world.ring(0), async_op=True)
        self._message = message  # in use until the exchange has ended

    def wait(self) -> list[torch.Tensor]:
        """Wait for the messages, by rank."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        return self._parts
