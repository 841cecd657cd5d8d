"""The number of samples in a batch of any structure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def samples_in(batch: Any) -> int:
    """Return the first length found in a batch: of a tensor or an array, also in lists and dicts.

    A tensor of sequences (with `lod`) counts its sequences. Return 0 if nothing can be counted.
    """
    offsets = getattr(batch, "lod", None)
    if callable(offsets) and offsets():
        return len(offsets()[0]) - 1
    shape = getattr(batch, "shape", None)
    if callable(shape):  # a LoDTensor
        shape = shape()
    if shape is not None:
        return int(shape[0]) if len(shape) else 0
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        for part in batch:
            found = samples_in(part)
            if found:
                return found
    return 0
