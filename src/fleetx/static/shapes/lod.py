"""Offsets of variable-length sequences (LoD), as ops see them at run time.

A LoD is a list of levels, a level a list of offsets: `[[0, 2, 5]]` is two sequences, of two and of
three rows. The last level counts rows, each level above counts sequences of the level below.
Sequence ops work on the flat rows with the sequence index of each row, not in a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

LoD = list[list[int]]
# The offsets of an op's inputs: by slot, one LoD (or None) per variable.
Lods = dict[str, list[LoD | None]]


class WithLod(NamedTuple):
    """An op's output with its offsets."""

    tensor: Any
    lod: LoD | None


def offsets_of(lengths: Iterable[int]) -> list[int]:
    """Return [0, a, a+b, ...] for lengths [a, b, ...]."""
    return [0, *accumulate(lengths)]


def lengths_of(offsets: Sequence[int]) -> list[int]:
    """Return [a, b, ...] for offsets [0, a, a+b, ...]."""
    return [end - start for start, end in pairwise(offsets)]


def lod_of(lod: Lods, slot: str, op_type: str, index: int = 0) -> LoD:
    """Return the LoD of a variable in an input slot, or raise a ValueError."""
    rows = lod.get(slot)
    found = rows[index] if rows else None
    if not found:
        raise ValueError(
            f"op {op_type!r} needs a variable-length input for {slot!r}, but it has no sequence "
            "lengths: feed a LoDTensor (create_lod_tensor), or use DataFeeder with lod_level=1."
        )
    return found


def optional_lod(lod: Lods, slot: str) -> LoD | None:
    """Return the LoD of the (first) variable in an input slot, or None."""
    rows = lod.get(slot)
    return (rows[0] or None) if rows else None


def as_tensor(numbers: Any, device: torch.device | str) -> torch.Tensor:
    """Return integers as an int64 tensor."""
    # NumPy reads a list several times faster than torch.tensor does.
    return torch.from_numpy(np.asarray(numbers, dtype=np.int64)).to(device)


def segment_ids(offsets: Sequence[int], device: torch.device | str) -> torch.Tensor:
    """Return the sequence index of every row: [0, 0, 1, 1, 1] for offsets [0, 2, 5]."""
    return as_tensor(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), device)


def positions(offsets: Sequence[int], device: torch.device | str) -> torch.Tensor:
    """Return the position of every row in its sequence: [0, 1, 0, 1, 2] for offsets [0, 2, 5]."""
    return as_tensor(np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets)), device)


def runs(starts: Any, lengths: Any, device: torch.device | str) -> torch.Tensor:
    """Return start, start+1, ... for each pair, one run of the given length after the other."""
    starts, lengths = np.asarray(starts, np.int64), np.asarray(lengths, np.int64)
    shift = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return as_tensor(np.arange(len(shift)) + shift, device)
