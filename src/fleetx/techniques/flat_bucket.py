"""Buckets: tensors that are sent together, and flat memory of their size for their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from fleetx import torch_private

SNAPSHOT, VELOCITY, RESIDUAL, REFERENCE = "snapshot", "velocity", "residual", "reference"
"""Kinds of memory: the last average, the outer momentum, the rounding error of messages, and the
parameters at the start of the average in flight.
"""
SUM_RESIDUAL = "sum_residual"
"""A kind of memory: the rounding error of this worker's share of a sum."""


class FlatBucket:
    """Tensors of one dtype, the flat memory in which they are sent, and their state by kind."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = list(tensors)
        sizes = [t.numel() for t in tensors]
        self.flat = torch.empty(sum(sizes), dtype=tensors[0].dtype, device=tensors[0].device)
        self.parts = self.views(self.flat)
        self.kept: dict[str, torch.Tensor] = {}

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return flat memory of the bucket's size in the shapes of the tensors."""
        sizes = [t.numel() for t in self.tensors]
        rows = zip(flat.split(sizes), self.tensors, strict=True)
        return [part.view(t.shape) for part, t in rows]

    def memory(self, kind: str) -> torch.Tensor:
        """Return the memory of a kind, zeros at first."""
        if kind not in self.kept:
            self.kept[kind] = torch.zeros_like(self.flat)
        return self.kept[kind]

    def fill(
        self, flat: torch.Tensor, names: Sequence[str], values: Mapping[str, torch.Tensor]
    ) -> None:
        """Fill flat memory with the values of those tensors that have one by their name."""
        for part, name in zip(self.views(flat), names, strict=True):
            if name in values:
                part.copy_(values[name])

    def pack(self) -> None:
        """Copy the tensors into the flat memory."""
        torch_private.foreach_copy_(self.parts, self.tensors)

    def unpack(self) -> None:
        """Copy the flat memory into the tensors."""
        torch_private.foreach_copy_(self.tensors, self.parts)

    def pack_difference(self, *, keep_reference: bool = False) -> None:
        """Set the flat memory to the snapshot minus the tensors; `keep_reference` stores the
        tensors.
        """
        self.pack()
        if keep_reference:
            self.memory(REFERENCE).copy_(self.flat)
        torch.sub(self.kept[SNAPSHOT], self.flat, out=self.flat)

    def follow(self, blend: float) -> None:
        """Move the tensors to the snapshot: by what it is ahead of the reference if there is one,
        otherwise of themselves."""
        snapshot, reference = self.kept[SNAPSHOT], self.kept.pop(REFERENCE, None)
        if reference is not None:
            self.pack()
            self.flat.add_(torch.sub(snapshot, reference), alpha=blend)
        elif blend == 1.0:
            self.flat.copy_(snapshot)
        else:
            self.pack()
            self.flat.lerp_(snapshot, blend)
        self.unpack()
