"""Sparse exchange of gradients: selected entries of each tensor, sent as (index, value).

All workers send the same number of entries of each tensor, so a single `all_gather` carries
everything: 4 bytes per index and the bytes of a value.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fleetx.comm import world
from fleetx.comm.layout import Workers

Entries = tuple[Tensor, Tensor]
"""Positions in a flat tensor, and the values there."""


def gather_entries(chosen: Sequence[Entries], among: Workers = world) -> list[list[Entries]]:
    """Exchange the selected entries of several tensors in one message.

    Args:
        chosen: per tensor the positions, as many on every worker, and the values there, float32.
        among: the workers that exchange.

    Returns:
        For each tensor the entries of all workers, by rank.
    """
    if not chosen:
        return []
    counts = [indices.numel() for indices, _ in chosen]
    total = sum(counts)
    positions = torch.cat([indices.int() for indices, _ in chosen])
    message = torch.cat([positions.view(torch.float32), *(values for _, values in chosen)])
    by_worker = []
    for part in among.all_gather(message):
        theirs = part[:total].view(torch.int32).long()
        by_worker.append(list(zip(theirs.split(counts), part[total:].split(counts), strict=True)))
    return [list(each) for each in zip(*by_worker, strict=True)]
