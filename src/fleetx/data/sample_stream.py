"""A stream of samples as an iterable data set for torch's DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info


class SampleStream(IterableDataset[Any]):
    """Samples of one worker, divided among the loader's processes.

    Call `set_epoch` before every epoch: shuffling and random choices depend on it.
    """

    def __init__(self, samples: Callable[[int], Iterator[Any]]) -> None:
        """Take a function that yields the samples of an epoch, given its number."""
        self._samples = samples
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        index, count = (info.id, info.num_workers) if info else (0, 1)
        return islice(self._samples(self._epoch), index, None, count)
