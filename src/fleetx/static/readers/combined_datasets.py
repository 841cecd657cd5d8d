"""Datasets: map-style (`Dataset`), iterable-style (`IterableDataset`), and combinations.

They are torch datasets too, so torch's and this package's loaders both take them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from torch.utils.data import get_worker_info as get_worker_info

from fleetx.data.dataset import Dataset, IterableDataset
from fleetx.exports import export_defined
from fleetx.static.errors import ArgumentError


class TensorDataset(Dataset):
    """A dataset of the rows of arrays or tensors with the same first dimension."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        rows = {int(tensor.shape[0]) for tensor in tensors}
        if len(rows) != 1:
            raise ArgumentError(
                f"TensorDataset takes tensors with the same first dimension, not {sorted(rows)}."
            )
        self.tensors = list(tensors)

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        return tuple(tensor[idx] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class ComposeDataset(Dataset):
    """Zips datasets of the same length: sample i has the fields of every dataset's sample i."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("ComposeDataset takes at least one dataset.")
        for dataset in self.datasets:
            if not isinstance(dataset, Dataset) or isinstance(dataset, IterableDataset):
                raise ArgumentError(
                    f"ComposeDataset takes map-style datasets, not {type(dataset).__name__}."
                )
        lengths = [len(dataset) for dataset in self.datasets]
        if len(set(lengths)) != 1:
            raise ArgumentError(f"ComposeDataset takes datasets of one length, not {lengths}.")

    def __len__(self) -> int:
        return len(self.datasets[0])

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        fields: list[Any] = []
        for dataset in self.datasets:
            sample = dataset[idx]
            fields.extend(sample if isinstance(sample, (list, tuple)) else [sample])
        return tuple(fields)


class ChainDataset(IterableDataset):
    """Chains several IterableDatasets."""

    def __init__(self, datasets: Iterable[IterableDataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("ChainDataset takes at least one dataset.")
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise ArgumentError(
                    f"ChainDataset takes IterableDatasets, not {type(dataset).__name__}."
                )

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from dataset


class Subset(Dataset):
    """The samples of a dataset at the given indices."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx: int) -> Any:
        return self.dataset[self.indices[idx]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset, lengths: Sequence[int], generator: np.random.Generator | None = None
) -> list[Subset]:
    """Split a dataset at random into parts of the given lengths."""
    if sum(lengths) != len(dataset):
        raise ValueError(
            f"random_split() got lengths {list(lengths)} with sum {sum(lengths)}, but the dataset "
            f"has {len(dataset)} samples."
        )
    permutation = (generator or np.random).permutation(len(dataset)).tolist()
    bounds = accumulate(lengths, initial=0)
    return [Subset(dataset, permutation[start:end]) for start, end in pairwise(bounds)]


export_defined(globals(), "Dataset", "IterableDataset", "get_worker_info")
