"""Sparse exchange of gradients: the largest entries of each tensor, sent as (index, value).

All workers send equally many entries of each tensor, so one `all_gather` of exactly these carries
everything: 4 bytes for an index and the bytes of a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fleetx.comm import world

# A sample of this share is enough to guess where the largest entries begin.
_SAMPLED = 128
_WORTH_SAMPLING = 2**16


@dataclass(frozen=True, kw_only=True)
class SparsitySchedule:
    """Which share of entries is held back in each step: nothing before `begin`, then the
    sparsities one after another over `ramp` steps, then the last of them."""

    begin: int = 0
    ramp: int = 1
    sparsities: tuple[float, ...] = (0.999,)

    def __post_init__(self) -> None:
        if self.begin < 0 or self.ramp < 1:
            raise ValueError(
                f"dgc needs rampup_begin_step >= 0 and rampup_step >= 1, not {self.begin} and "
                f"{self.ramp}."
            )
        for sparsity in self.sparsities:
            if not 0 <= sparsity < 1:
                raise ValueError(f"a sparsity of dgc is at least 0 and below 1, not {sparsity}.")
        if 0 in self.sparsities[1:] and any(self.sparsities):
            raise ValueError(
                f"sparsity {list(self.sparsities)} of dgc goes back to 0, which would lose what "
                "was held back: let it grow."
            )

    def at(self, step: int) -> float:
        """Return the sparsity of a step, counted from 0; 0 while gradients travel whole."""
        if step < self.begin:
            return 0.0
        count = len(self.sparsities)
        return self.sparsities[min((step - self.begin) * count // self.ramp, count - 1)]


def entries(elements: int, sparsity: float) -> int:
    """Return how many entries of a tensor are sent, at least one."""
    return max(1, int(elements * (1.0 - sparsity)))


def largest(values: Tensor, count: int) -> Tensor:
    """Return the positions of the `count` largest magnitudes of a flat tensor, exactly.

    A sample tells a bound that somewhat more entries exceed; only these are sorted. If it was too
    high, everything is.
    """
    sizes = values.abs()
    if values.numel() >= _WORTH_SAMPLING and count * 8 <= values.numel():
        stride = _SAMPLED - 1  # odd: does not follow the rows of a matrix
        sample = sizes[::stride]
        rank = min(sample.numel(), max(1, count * 2 // stride) + 4)
        bound = sample.topk(rank, sorted=False).values.min()
        candidates = (sizes > bound).nonzero().view(-1)
        if candidates.numel() >= count:
            best = sizes[candidates].topk(count, sorted=False).indices
            return candidates[best]
    return sizes.topk(count, sorted=False).indices


def gather_entries(
    indices: Sequence[Tensor], values: Sequence[Tensor]
) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Exchange the chosen entries of several tensors in one message.

    Args:
        indices: positions per tensor, as many on every worker.
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
