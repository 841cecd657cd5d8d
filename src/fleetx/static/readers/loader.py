"""DataLoader: batches of a Dataset for a program, prefetched by a thread or by processes.

Without worker processes a background thread reads the dataset, and exceptions propagate
unchanged. With `num_workers`, torch's loader does the work in its processes, and arrays are passed
in shared memory. With a `feed_list` the batches are lists with one feed dict per place; with
`return_list` (the default without feed_list) they are the collated samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils.data

from fleetx import torch_private
from fleetx.static.errors import ArgumentError
from fleetx.static.readers.background_reading import BackgroundIterator
from fleetx.static.readers.batch import in_groups
from fleetx.static.readers.collate import default_collate_fn, default_convert_fn, map_leaves
from fleetx.static.readers.dataset_loader import DatasetLoader
from fleetx.static.readers.generator_loader import GeneratorLoader, as_places, group_by_place
from fleetx.static.readers.lod_tensor import LoDTensor
from fleetx.static.readers.sampler import BatchSampler
from fleetx.static.run.place import CPUPlace


class DataLoader:
    """Iterates over a dataset in batches; every `iter()` or call starts a new pass."""

    def __init__(
        self,
        dataset: Any,
        feed_list: Sequence[Any] | None = None,
        places: Any = None,
        return_list: bool | None = None,
        batch_sampler: Any = None,
        batch_size: int | None = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[Any], Any] | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        use_shared_memory: bool = True,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        prefetch_factor: int = 2,
        persistent_workers: bool = False,
    ) -> None:
        if return_list is None:
            return_list = feed_list is None
        if not return_list and feed_list is None:
            raise ArgumentError("feed_list should be set when return_list=False: its variables.")
        if num_workers < 0 or timeout < 0 or prefetch_factor <= 0:
            raise ArgumentError(
                "num_workers and timeout must not be negative, and prefetch_factor must be "
                f"positive, but they are {num_workers}, {timeout} and {prefetch_factor}."
            )
        self.dataset = dataset
        self.feed_list = feed_list
        self.places = as_places(CPUPlace() if places is None else places)
        self.return_list = return_list
        self.num_workers = num_workers
        self.use_buffer_reader = use_buffer_reader
        self.use_shared_memory = use_shared_memory and num_workers > 0
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers and num_workers > 0
        self.drop_last = drop_last
        self.batch_size = batch_size
        self.batch_sampler = self._sampler(batch_sampler, shuffle)
        self.collate_fn = collate_fn or (
            default_convert_fn if self._is_batched_already else default_collate_fn
        )
        # A separate generator: loading data must not change the program's random numbers.
        self._generator = torch.Generator().manual_seed(torch.initial_seed())
        self._workers: torch.utils.data.DataLoader[Any] | None = None

    def _sampler(self, batch_sampler: Any, shuffle: bool) -> Any:
        if self._is_stream and (shuffle or batch_sampler is not None):
            raise ValueError("An IterableDataset has its own order: no shuffle, no batch_sampler.")
        if batch_sampler is not None:
            if self.batch_size != 1 or shuffle or self.drop_last:
                raise ArgumentError(
                    "batch_size, shuffle and drop_last cannot be used with a batch_sampler."
                )
            self.batch_size = None
            return batch_sampler
        if self.batch_size is None or self._is_stream:
            return None
        return BatchSampler(
            self.dataset, shuffle=shuffle, batch_size=self.batch_size, drop_last=self.drop_last
        )

    @property
    def _is_stream(self) -> bool:
        return isinstance(self.dataset, torch.utils.data.IterableDataset)

    @property
    def _is_batched_already(self) -> bool:
        """Whether the dataset yields batches instead of samples."""
        return self.batch_sampler is None and self.batch_size is None

    def __len__(self) -> int:
        if self._is_stream:
            raise ValueError("A loader of an IterableDataset has no length.")
        return len(self.dataset if self.batch_sampler is None else self.batch_sampler)

    def __call__(self) -> Iterator[Any]:
        """Start a pass."""
        return iter(self)

    def __iter__(self) -> Iterator[Any]:
        batches: Iterator[Any]
        if self.num_workers:
            batches = self._from_workers()
        elif self.use_buffer_reader:
            ahead = self.prefetch_factor * len(self.places)
            batches = BackgroundIterator(self._from_dataset, ahead, "fleetx-loader")
        else:
            batches = self._from_dataset()
        if self.return_list:
            return self._lists(batches)
        names = [variable.name for variable in self.feed_list or ()]
        return group_by_place(map(self._row, batches), self.places, names, drop_last=True)

    # -- where batches come from -----------------------------------------------------------------
    def _from_dataset(self) -> Iterator[Any]:
        if self._is_batched_already:
            samples = (
                self.dataset
                if self._is_stream
                else map(self.dataset.__getitem__, range(len(self.dataset)))
            )
            yield from map(self.collate_fn, samples)
        elif self._is_stream:
            groups = in_groups(self.dataset, self.batch_size or 1, self.drop_last)
            yield from map(self.collate_fn, groups)
        else:
            for indices in self.batch_sampler:
                yield self.collate_fn([self.dataset[i] for i in indices])

    def _from_workers(self) -> Iterator[Any]:
        if self._workers is None or not self.persistent_workers:
            self._workers = self._torch_loader()
        batches = iter(self._workers)
        try:
            for batch in batches:
                yield map_leaves(_from_shared, batch)
        except Exception:
            torch_private.end_loader_workers(batches)
            self._workers = None
            raise

    def _torch_loader(self) -> torch.utils.data.DataLoader[Any]:
        collate = _SharingCollate(self.collate_fn) if self.use_shared_memory else self.collate_fn
        if self.batch_sampler is not None:
            batching: dict[str, Any] = {"batch_sampler": self.batch_sampler}
        elif self.batch_size is None:
            batching = {"batch_size": None}
        else:
            batching = {"batch_size": self.batch_size, "drop_last": self.drop_last}
        return torch.utils.data.DataLoader(
            self.dataset,
            collate_fn=collate,
            num_workers=self.num_workers,
            timeout=self.timeout,
            worker_init_fn=self.worker_init_fn,
            prefetch_factor=self.prefetch_factor,
            persistent_workers=self.persistent_workers,
            generator=self._generator,
            **batching,
        )

    # -- what a batch looks like -----------------------------------------------------------------
    def _row(self, batch: Any) -> list[LoDTensor]:
        """Return the tensors of a batch in the order of feed_list."""
        names = [variable.name for variable in self.feed_list or ()]
        if isinstance(batch, dict):
            fields = [batch[name] for name in names]
        else:
            fields = list(batch) if isinstance(batch, list | tuple) else [batch]
        if len(fields) != len(names):
            raise ValueError(
                f"The dataset has {len(fields)} fields per sample, but feed_list has "
                f"{len(names)} variables: {', '.join(names)}."
            )
        return [_feedable(field, name) for field, name in zip(fields, names, strict=True)]

    def _lists(self, batches: Iterator[Any]) -> Iterator[Any]:
        if len(self.places) == 1:
            for batch in batches:
                yield map_leaves(_tensor, batch)
            return
        for group in in_groups(batches, len(self.places), drop_last=True):
            yield [map_leaves(_tensor, batch) for batch in group]

    # -- loaders of other sources ----------------------------------------------------------------
    from_generator = GeneratorLoader
    from_dataset = DatasetLoader


class _SharingCollate:
    """Collates in the worker and moves arrays to shared memory; picklable for spawned workers."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: Any) -> Any:
        return map_leaves(_to_shared, self.collate(samples))


class _Shared:
    """An array in shared memory; the class distinguishes it from the user's tensors."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def _to_shared(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.char in "?efdbhilqB" and value.size:
        return _Shared(torch.from_numpy(np.ascontiguousarray(value)))
    return value


def _from_shared(value: Any) -> Any:
    return value.tensor.numpy() if isinstance(value, _Shared) else value


def _feedable(value: Any, name: str) -> LoDTensor:
    tensor = _tensor(value)
    if not isinstance(tensor, LoDTensor):
        raise TypeError(
            f"The field for variable {name!r} is collated to {type(value).__name__}, but only "
            "arrays and tensors can be fed."
        )
    return tensor


def _tensor(value: Any) -> Any:
    if isinstance(value, np.ndarray | torch.Tensor | float | int):
        return LoDTensor(value)
    return value
