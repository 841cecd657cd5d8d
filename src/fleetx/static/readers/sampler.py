"""Samplers: the order and the batches in which the samples of a dataset are taken.

Random samplers use NumPy's global random state; DistributedBatchSampler is seeded by the epoch
number, which is the same on every worker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sized
from typing import Any

import numpy as np
import torch.distributed

from fleetx.runtime import environment
from fleetx.static.errors import ArgumentError
from fleetx.static.readers.batch import in_groups
from fleetx.static.readers.combined_datasets import IterableDataset


class Sampler:
    """Base of samplers, which iterate over indices: subclasses define `__iter__`."""

    def __init__(self, data_source: Any = None) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__().")


class SequenceSampler(Sampler):
    """Indices in order: 0, 1, 2, ..."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """A random permutation of the indices; with `replacement`, `num_samples` random indices.

    A `generator`, an iterator of indices, is used instead if it is given.
    """

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Iterator[int] | None = None,
    ) -> None:
        super().__init__(data_source)
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement of RandomSampler is True or False, not {replacement!r}.")
        if num_samples is not None and not replacement:
            raise ValueError("num_samples of RandomSampler is for replacement=True.")
        self.replacement = replacement
        self.generator = generator
        self._num_samples = num_samples
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(
                f"num_samples of RandomSampler should be positive, not {self.num_samples!r}."
            )

    @property
    def num_samples(self) -> int:
        """The number of indices in a pass."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        if self.generator is not None:
            for _, index in zip(range(self.num_samples), self.generator, strict=False):
                yield index
        elif self.replacement:
            yield from np.random.randint(len(self.data_source), size=self.num_samples).tolist()
        else:
            yield from np.random.permutation(len(self.data_source)).tolist()

    def __len__(self) -> int:
        return self.num_samples


class WeightedRandomSampler(Sampler):
    """Random indices, drawn with probabilities proportional to their weights."""

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True) -> None:
        super().__init__()
        if not isinstance(num_samples, int) or num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer, not {num_samples!r}.")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement is True or False, not {replacement!r}.")
        self.weights = np.asarray(weights)
        self.num_samples = num_samples
        self.replacement = replacement

    def __iter__(self) -> Iterator[int]:
        if self.weights.ndim not in (1, 2):
            raise ArgumentError(f"weights have one or two dimensions, not {self.weights.ndim}.")
        for row in self.weights.reshape(-1, self.weights.shape[-1]).astype("float64"):
            if not np.all(np.isfinite(row)) or np.any(row < 0) or not np.any(row > 0):
                raise ArgumentError(
                    "weights must be finite, not negative, and at least one must be above zero."
                )
            usable = int(np.count_nonzero(row))
            if not self.replacement and usable < self.num_samples:
                raise ArgumentError(
                    f"{self.num_samples} samples without replacement were requested, but only "
                    f"{usable} weights are above zero."
                )
            yield from np.random.choice(
                row.size, self.num_samples, self.replacement, row / row.sum()
            ).tolist()

    def __len__(self) -> int:
        return self.num_samples * (self.weights.size // self.weights.shape[-1])


class BatchSampler(Sampler):
    """Groups the indices of a sampler, or of a dataset (in order or shuffled), into batches."""

    sampler: Iterable[int]

    def __init__(
        self,
        dataset: Any = None,
        sampler: Sampler | None = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        super().__init__(dataset)
        _check_flags(batch_size, shuffle, drop_last)
        if (dataset is None) == (sampler is None):
            raise ArgumentError("BatchSampler takes either a dataset or a sampler.")
        if sampler is not None:
            if not isinstance(sampler, Sampler) and not isinstance(sampler, Iterable):
                raise ArgumentError(f"sampler should be a Sampler, not {type(sampler).__name__}.")
            if shuffle:
                raise ArgumentError("shuffle=True is for a dataset; a sampler has its own order.")
            self.sampler = sampler
        else:
            if isinstance(dataset, IterableDataset):
                raise ArgumentError(
                    "BatchSampler needs a map-style dataset, not an IterableDataset."
                )
            self.sampler = RandomSampler(dataset) if shuffle else SequenceSampler(dataset)
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        return in_groups(self.sampler, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        if not isinstance(self.sampler, Sized):
            raise TypeError(f"sampler {type(self.sampler).__name__} has no length.")
        return _batch_count(len(self.sampler), self.batch_size, self.drop_last)


class DistributedBatchSampler(BatchSampler):
    """The batches of one worker; all workers get the same number of samples.

    The indices are padded with the first ones to a multiple of the number of workers. Batches are
    distributed round-robin; the remainder is divided evenly.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
    ) -> None:
        Sampler.__init__(self, dataset)
        _check_flags(batch_size, shuffle, drop_last)
        own_rank, workers = worker_rank_and_count()
        self.nranks = workers if num_replicas is None else num_replicas
        self.local_rank = own_rank if rank is None else rank
        if not isinstance(self.nranks, int) or self.nranks <= 0:
            raise ArgumentError(f"num_replicas should be a positive integer, not {num_replicas!r}.")
        if not isinstance(self.local_rank, int) or not 0 <= self.local_rank < self.nranks:
            raise ArgumentError(
                f"rank should be from 0 to {self.nranks - 1}, as there are {self.nranks} workers, "
                f"but it is {self.local_rank!r}."
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.epoch = 0
        self.num_samples = math.ceil(len(dataset) / self.nranks)
        self.total_size = self.num_samples * self.nranks

    def set_epoch(self, epoch: int) -> None:
        """Set the seed of the next shuffled pass; use the same number on every worker."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        order = np.resize(np.arange(len(self.dataset)), self.total_size)
        if self.shuffle:
            np.random.RandomState(self.epoch).shuffle(order)
            self.epoch += 1
        per_round = self.batch_size * self.nranks
        whole = self.total_size - self.total_size % per_round
        # Full rounds: one batch per worker and round. Then the rest, in one piece per worker.
        rounds = order[:whole].reshape(-1, self.nranks, self.batch_size)[:, self.local_rank]
        rest = order[whole:].reshape(self.nranks, -1)[self.local_rank]
        own = [*rounds.ravel().tolist(), *rest.tolist()]
        return in_groups(own, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        return _batch_count(self.num_samples, self.batch_size, self.drop_last)


def worker_rank_and_count() -> tuple[int, int]:
    """Return the rank of this worker and the number of workers.

    They come from torch.distributed if it is initialised, else from the launcher's variables.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return environment.worker_index(), environment.worker_num()


def _check_flags(batch_size: Any, shuffle: Any, drop_last: Any) -> None:
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
        raise ArgumentError(f"batch_size should be a positive integer, but got {batch_size!r}.")
    for name, flag in (("shuffle", shuffle), ("drop_last", drop_last)):
        if not isinstance(flag, bool):
            raise ArgumentError(f"{name} should be True or False, but got {flag!r}.")


def _batch_count(samples: int, size: int, drop_last: bool) -> int:
    return samples // size if drop_last else math.ceil(samples / size)
