"""The data source of a generator loader: samples, lists of samples, or batches.

All three are converted to lists with one LoDTensor per variable, in the loader's background
thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fleetx.static.errors import ArgumentError
from fleetx.static.readers.batch import Reader, batch
from fleetx.static.readers.data_feeder import DataFeeder, Slot
from fleetx.static.readers.lod_tensor import LoDTensor
from fleetx.static.readers.multiprocess import multiprocess_reader


class GeneratorSource:
    """Batches for the given slots from one user-written generator function."""

    def __init__(self, slots: Sequence[Slot], use_multiprocess: bool = False) -> None:
        self.slots = list(slots)
        self._use_multiprocess = use_multiprocess
        self._reader: Reader | None = None
        self._feeder: DataFeeder | None = None

    @property
    def is_set(self) -> bool:
        """Whether a generator has been set."""
        return self._reader is not None

    def set_samples(self, reader: Reader, batch_size: int, drop_last: bool = True) -> None:
        """Take a generator of single samples and group them."""
        if batch_size <= 0:
            raise ArgumentError(f"batch_size must be larger than 0, not {batch_size}.")
        self.set_sample_lists(batch(reader, batch_size, drop_last))

    def set_sample_lists(self, reader: Reader) -> None:
        """Take a generator of mini-batches, each a list of samples."""
        self._set(reader, DataFeeder.for_slots(self.slots))

    def set_batches(self, reader: Reader) -> None:
        """Take a generator of ready arrays or LoDTensors, one per variable."""
        self._set(reader, None)

    def _set(self, reader: Reader, feeder: DataFeeder | None) -> None:
        if not callable(reader):
            raise TypeError(
                "A reader must be a function that returns a new generator for every pass, not "
                f"{type(reader).__name__}."
            )
        self._reader, self._feeder = reader, feeder

    def batches(self) -> Iterator[list[LoDTensor]]:
        """Run the generator from the start."""
        if self._reader is None:
            raise ArgumentError("The loader has no data source: call one of its set_* methods.")
        reader = multiprocess_reader([self._reader]) if self._use_multiprocess else self._reader
        for item in reader():
            if self._feeder is not None:
                feed = self._feeder.feed(item)
                yield [feed[slot.name] for slot in self.slots]
            else:
                yield self._tensors(item)

    def _tensors(self, arrays: Iterable[Any]) -> list[LoDTensor]:
        items = list(arrays)
        if len(items) != len(self.slots):
            names = ", ".join(slot.name for slot in self.slots)
            raise ValueError(
                f"A batch generator must yield one array for each of {names} "
                f"({len(self.slots)}), but yielded {len(items)}."
            )
        return [_as_tensor(item, slot) for item, slot in zip(items, self.slots, strict=True)]


def _as_tensor(item: Any, slot: Slot) -> LoDTensor:
    if isinstance(item, LoDTensor):
        return item
    tensor = LoDTensor()
    # Copied: the generator may reuse its buffer while this batch is queued.
    tensor.set(regular_array(item, f"The batch for variable {slot.name!r}"))
    return tensor


def regular_array(item: Any, what: str) -> np.ndarray[Any, Any]:
    """Return nested lists as an array; raise TypeError if their lengths differ."""
    try:
        array = np.asarray(item)
        ragged = array.dtype == object
    except ValueError:
        ragged = True
    if ragged:
        raise TypeError(
            f"{what} is not a regular array: its nested lists have different lengths; pass "
            "sequences as a LoDTensor made by create_lod_tensor()."
        )
    return array
