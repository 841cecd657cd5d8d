"""`DataLoader.from_dataset`: the batches of an InMemoryDataset or QueueDataset as feeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fleetx.static.errors import ArgumentError
from fleetx.static.readers.batch import in_groups
from fleetx.static.readers.dataset_base import DatasetBase
from fleetx.static.readers.generator_loader import Batch, DataLoaderBase, as_places, group_by_place
from fleetx.static.readers.lod_tensor import concat_lod_tensors, split_sequences


class DatasetLoader(DataLoaderBase):
    """Iterates over the feeds of a dataset: lists with one dict per place."""

    def __init__(self, dataset: Any, places: Any, drop_last: bool = True) -> None:
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
        rows: Iterable[list[Any]] = (
            [feed[name] for name in names]
            for feed in self._dataset.batches(drop_last=self._drop_last)
        )
        if not self._drop_last and len(self._places) > 1:
            rows = self._last_for_all(rows)
        return group_by_place(rows, self._places, names, self._drop_last)

    def _last_for_all(self, rows: Iterable[list[Any]]) -> Iterator[list[Any]]:
        """Yield the batches; the last ones are divided so that every place gets some of them."""
        places = len(self._places)
        for group in in_groups(rows, places, drop_last=False):
            if len(group) == places:
                yield from group
                continue
            slots = [
                split_sequences(concat_lod_tensors(s), places) for s in zip(*group, strict=True)
            ]
            yield from map(list, zip(*slots, strict=True))
