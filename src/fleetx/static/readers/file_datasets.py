"""Datasets of text files for `Executor.train_from_dataset`: QueueDataset and InMemoryDataset.

A QueueDataset streams files, an InMemoryDataset holds them and can shuffle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.readers.background_reading import BackgroundIterator
from fleetx.static.readers.dataset_base import BATCHES_AHEAD, DatasetBase
from fleetx.static.readers.memory_dataset import InMemoryDataset
from fleetx.static.readers.multi_slot import Instance


class QueueDataset(DatasetBase):
    """Streams the files; a stream cannot be shuffled."""

    def _instances(self) -> Iterator[Instance]:
        # Several files are read concurrently, but yielded in order.
        files = iter(self.filelist)
        running: deque[BackgroundIterator[list[Instance]]] = deque()

        def open_next() -> None:
            for path in files:
                chunks = partial(self._file_chunks, path)
                running.append(BackgroundIterator(chunks, BATCHES_AHEAD, name="fleetx-file"))
                return

        for _ in range(self.thread_num):
            open_next()
        while running:
            for chunk in running.popleft():
                yield from chunk
            open_next()

    def local_shuffle(self) -> None:
        """Raise NotImplementedError: a stream cannot be shuffled."""
        raise NotImplementedError(
            "QueueDataset does not support local_shuffle; InMemoryDataset does."
        )

    def global_shuffle(self, fleet: Any = None) -> None:
        """Raise NotImplementedError: a stream cannot be shuffled."""
        raise NotImplementedError(
            "QueueDataset does not support global_shuffle; InMemoryDataset does."
        )


class FileInstantDataset(QueueDataset):
    """A QueueDataset under another of Paddle's names."""

    feed_type = "MultiSlotFileInstantDataFeed"


class DatasetFactory:
    """Makes datasets by name."""

    _KINDS = (InMemoryDataset, QueueDataset, FileInstantDataset)

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> Any:
        """Return a new QueueDataset or InMemoryDataset."""
        for kind in self._KINDS:
            if kind.__name__ == datafeed_class:
                return kind()
        raise ValueError(
            f"datafeed class {datafeed_class!r} does not exist; use "
            f"{', '.join(kind.__name__ for kind in self._KINDS)}."
        )


export_defined(globals(), "DatasetBase", "InMemoryDataset")
