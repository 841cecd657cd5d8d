"""Datasets: samples by number (`Dataset`) or in a stream (`IterableDataset`).

They are torch datasets too, so torch's and this package's loaders both take them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.utils.data


class Dataset(torch.utils.data.Dataset[Any]):
    """Samples by number: subclasses define `__getitem__` and `__len__`."""

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(idx).")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__().")


class _NoLengthError(RuntimeError, TypeError):
    """Python takes a TypeError for "has no length", so that `list(dataset)` works."""


class IterableDataset(Dataset, torch.utils.data.IterableDataset[Any]):
    """Samples in a stream: subclasses define `__iter__`.

    With several loader processes each has a copy; `get_worker_info()` says which part to give.
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__().")

    def __getitem__(self, idx: int) -> Any:
        raise RuntimeError(f"{type(self).__name__} is an IterableDataset: it has no numbers.")

    def __len__(self) -> int:
        raise _NoLengthError(f"{type(self).__name__} is an IterableDataset: it has no length.")
