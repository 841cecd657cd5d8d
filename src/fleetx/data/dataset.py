"""Datasets: samples by index (`Dataset`) or as a stream (`IterableDataset`).

They are also torch datasets, so torch's and this package's loaders both accept them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.utils.data


class Dataset(torch.utils.data.Dataset[Any]):
    """Samples by index: subclasses define `__getitem__` and `__len__`."""

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(idx).")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__().")


class _NoLengthError(RuntimeError, TypeError):
    """An error without a length; as a TypeError it makes `list(dataset)` work."""


class IterableDataset(Dataset, torch.utils.data.IterableDataset[Any]):
    """Samples as a stream: subclasses define `__iter__`.

    With several loader processes each has a copy; `get_worker_info()` returns which part to yield.
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__().")

    def __getitem__(self, idx: int) -> Any:
        raise RuntimeError(f"{type(self).__name__} is an IterableDataset: it cannot be indexed.")

    def __len__(self) -> int:
        raise _NoLengthError(f"{type(self).__name__} is an IterableDataset: it has no length.")
