"""Sparse exchange of gradients: selected entries of each tensor, sent as (index, value).

All workers send the same number of entries of each tensor, so a single `all_gather` carries
everything: 4 bytes per index and the bytes of a value.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fleetx.comm import world


def gather_entries(
    indices: Sequence[Tensor], values: Sequence[Tensor]
) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Exchange the selected entries of several tensors in one message.

    Args:
        indices: positions per tensor, equally many on every worker.
        values: the entries there, float32.

    Returns:
        For each worker, by rank, its indices and values per tensor.
    """
    counts = [i.numel() for i in indices]
    total = sum(counts)
    message = torch.cat([torch.cat([i.int() for i in indices]).view(torch.float32), *values])
    found = []
    for part in world.all_gather(message):
        theirs = part[:total].view(torch.int32).long()
        found.append((list(theirs.split(counts)), list(part[total:].split(counts))))
    return found
