"""A second group of all workers, for a background thread.

Collectives of two threads on one group would be matched with each other in any order. This group is
Gloo on every device: it carries single numbers from CPU memory.
"""

from __future__ import annotations

import datetime

import torch
import torch.distributed as dist

from fleetx.comm.world import meet

# A worker may write for hours while the others wait; one that dies closes its connections.
_PATIENCE = datetime.timedelta(days=7)


class SideGroup:
    """All workers, apart from the training's collectives; all of them must create it together."""

    def __init__(self) -> None:
        meet()
        self._group = dist.new_group(backend="gloo", timeout=_PATIENCE)

    def gather(self, number: int) -> list[int]:
        """Return the numbers of all workers, by rank."""
        parts = [torch.empty(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, torch.tensor([number]), group=self._group)
        return [int(part) for part in parts]
