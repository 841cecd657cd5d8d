"""Compression of gradients: the entries to send, and the residual of the others.

Each worker adds its gradient to a velocity u and the velocity to its residual v; the largest
entries of v are sent, and both are then zeroed there (factor masking).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SMALLEST = 16384
"""Tensors with fewer elements are sent uncompressed."""

# A sample of this fraction suffices to estimate the threshold of the largest entries.
_SAMPLED = 128
_WORTH_SAMPLING = 2**16
# Up to one entry of so many is accessed by its position.
_FEW = 32


@dataclass(frozen=True, kw_only=True)
class SparsitySchedule:
    """The sparsity of each step: 0 before `begin`, then the sparsities one after another over
    `ramp` steps, then the last one."""

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
                raise ValueError(f"a sparsity of dgc must be in [0, 1), not {sparsity}.")
        if 0 in self.sparsities[1:] and any(self.sparsities):
            raise ValueError(
                f"sparsity {list(self.sparsities)} of dgc decreases to 0, which would lose the "
                "residual: use increasing values."
            )

    def at(self, step: int) -> float:
        """Return the sparsity of a step, counted from 0; 0 while gradients are sent dense."""
        if step < self.begin:
            return 0.0
        count = len(self.sparsities)
        return self.sparsities[min((step - self.begin) * count // self.ramp, count - 1)]


def entries(elements: int, sparsity: float) -> int:
    """Return the number of entries of a tensor to send, at least one."""
    return max(1, int(elements * (1.0 - sparsity)))


def largest(values: Tensor, count: int) -> Tensor:
    """Return the positions of the `count` largest magnitudes of a flat tensor, exactly.

    A sample gives a threshold that slightly more entries exceed; only these are sorted. If it was
    too high, all entries are.
    """
    sizes = values.abs()
    if values.numel() >= _WORTH_SAMPLING and count * 8 <= values.numel():
        stride = _SAMPLED - 1  # odd, so as not to follow the rows of a matrix
        sample = sizes[::stride]
        rank = min(sample.numel(), max(1, count * 2 // stride) + 4)
        bound = sample.topk(rank, sorted=False).values.min()
        candidates = (sizes > bound).nonzero().view(-1)
        if candidates.numel() >= count:
            best = sizes[candidates].topk(count, sorted=False).indices
            return candidates[best]
    return sizes.topk(count, sorted=False).indices


def add_entries(total: Tensor, entries: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Add the mean of the workers' entries to a flat tensor: positions and values, by rank."""
    for indices, values in entries:
        total.index_add_(0, indices, values, alpha=1.0 / len(entries))
    return total


def update_entries(
    param: Tensor,
    entries: Sequence[tuple[Tensor, Tensor]],
    rate: float | None,
    zeros: Tensor,
) -> None:
    """Update a parameter by the mean of the workers' entries; without `rate`, values include it.

    p -= rate * mean, the same bits as with a dense mean, but computed only at the entries that some
    worker sent. `zeros` is flat memory of at least the parameter's size; it is reset to zero.
    """
    add_entries(zeros, entries)
    flat, positions = param.view(-1), [indices for indices, _ in entries]
    is_few = sum(each.numel() for each in positions) * _FEW <= flat.numel()
    # With many entries, dense passes over memory are faster.
    sent = torch.cat(positions) if is_few else slice(flat.numel())
    step = zeros[sent] if rate is None else zeros[sent] * rate
    # A position that several workers sent is written several times, with the same value.
    flat[sent] = flat[sent] - step
    zeros[sent] = 0


def compress(
    u: Tensor,
    v: Tensor,
    grad: Tensor,
    count: int,
    *,
    mu: float,
    nesterov: bool,
    rate: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Add a gradient to u and v; return positions and values of the entries to send.

    `rate` is the learning rate if the residual includes it; the update must then not apply it
    again.
    """
    if nesterov:
        u.add_(grad).mul_(mu)
        v.add_(u, alpha=rate).add_(grad, alpha=rate)
    else:
        u.mul_(mu).add_(grad)
        v.add_(u, alpha=rate)
    flat = v.view(-1)
    indices = largest(flat, count)
    values = flat[indices]
    flat[indices] = 0
    u.view(-1)[indices] = 0
    return indices, values
