"""`DataLoader.from_dataset`: the batches of an InMemoryDataset or QueueDataset as feeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetx.static.errors import ArgumentError
from fleetx.static.readers.generator_loader import Batch, DataLoaderBase, as_places, group_by_place


class DatasetLoader(DataLoaderBase):
    """Iterates over the feeds of a dataset: lists with one dict per place."""

    def __init__(self, dataset: Any, places: Any, drop_last: bool = True) -> None:
        from fleetx.static.readers.file_datasets import DatasetBase

        if not isinstance(dataset, DatasetBase):
            raise ArgumentError(
                "from_dataset() takes an InMemoryDataset or a QueueDataset, not "
                f"{type(dataset).__name__}."
            )
        self._dataset = dataset
        self._places = as_places(places)
        self._drop_last = drop_last

    def __iter__(self) -> Iterator[Batch]:
        names = self._dataset.slot_names
        rows = (
            [feed[name] for name in names]
            for feed in self._dataset.batches(drop_last=self._drop_last)
        )
        return group_by_place(rows, self._places, names, self._drop_last)
