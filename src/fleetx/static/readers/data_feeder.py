"""DataFeeder: from mini-batches of samples to the feed of a program.

A mini-batch is a list of samples, a sample holds one field per variable. Each field is converted
to the element type and shape of its variable; a variable with `lod_level` 1 takes one sequence
per sample, with level 2 a list of sequences, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fleetx.comm import device
from fleetx.runtime.environment import cpu_num
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.default_programs import default_main_program
from fleetx.static.graph.dtypes import to_numpy
from fleetx.static.graph.variable import Variable
from fleetx.static.readers.batch import Reader, in_groups
from fleetx.static.readers.lod_tensor import LoDTensor
from fleetx.static.run.place import CPUPlace, CUDAPlace, Place

Feed = dict[str, LoDTensor]


class Slot(NamedTuple):
    """The input of one variable: its name, shape (-1 for any size), element type, LoD levels."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    lod_level: int
    need_check_feed: bool = False


def slot_of(variable: Any) -> Slot:
    """Return the slot of a Variable."""
    return Slot(
        variable.name,
        tuple(variable.shape),
        variable.dtype,
        variable.lod_level,
        variable.need_check_feed,
    )


class SlotConverter:
    """Collects the fields of one variable and turns them into one LoDTensor."""

    def __init__(self, slot: Slot, place: Place | None = None) -> None:
        self.slot = slot
        self.place = place if place is not None else CPUPlace()
        self._dtype = to_numpy(slot.dtype)
        # Reshaping needs at most one unknown dimension.
        self._fixed_rank = sum(dim < 0 for dim in slot.shape) <= 1
        self.reset()

    def reset(self) -> None:
        """Discard the collected fields."""
        self._rows: list[Any] = []
        self._lengths: list[list[int]] = [[] for _ in range(self.slot.lod_level)]

    def feed(self, field: Any) -> None:
        """Add the field of one sample."""
        self._add(field, 0)

    def _add(self, field: Any, level: int) -> None:
        if level == self.slot.lod_level:
            self._rows.append(field)
            return
        try:
            self._lengths[level].append(len(field))
        except TypeError as error:
            raise ValueError(
                f"Variable {self.slot.name!r} has lod_level {self.slot.lod_level}, so a sample "
                f"must hold a sequence for it, but level {level} of a sample is {field!r}."
            ) from error
        if level + 1 == self.slot.lod_level:
            self._rows.extend(field)
        else:
            for part in field:
                self._add(part, level + 1)

    def done(self) -> LoDTensor:
        """Return the collected fields as one tensor, and reset."""
        tensor = LoDTensor()
        tensor.set(self._shaped(self._array()), self.place, zero_copy=True)
        if self._lengths:
            tensor.set_recursive_sequence_lengths(self._lengths)
        self.reset()
        return tensor

    def _array(self) -> np.ndarray[Any, Any]:
        try:
            return np.array(self._rows, dtype=self._dtype)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"The samples for variable {self.slot.name!r} cannot form one {self._dtype} array: "
                f"{error}"
            ) from error

    def _shaped(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        shape = self.slot.shape
        if not shape or not self._fixed_rank or array.ndim == len(shape):
            return array
        try:
            return array.reshape(shape)
        except ValueError as error:
            raise ValueError(
                f"Reshape error for variable {self.slot.name!r}: it is declared with shape "
                f"{shape}, but the samples form shape {array.shape}."
            ) from error


class DataFeeder:
    """Converts mini-batches to feeds for the variables in `feed_list` (Variables or names)."""

    def __init__(
        self, feed_list: Sequence[Any], place: Place | None = None, program: Any = None
    ) -> None:
        block = (program if program is not None else default_main_program()).global_block()
        slots = []
        for item in feed_list:
            variable = block.var(item) if isinstance(item, str) else item
            if not isinstance(variable, Variable):
                raise TypeError(
                    "feed_list of a DataFeeder holds Variables or their names, not "
                    f"{type(item).__name__}: {item!r}."
                )
            slots.append(slot_of(variable))
        self._init(slots, place)

    @classmethod
    def for_slots(cls, slots: Sequence[Slot], place: Place | None = None) -> DataFeeder:
        """Return a feeder for slots that are not variables of a program."""
        feeder = cls.__new__(cls)
        feeder._init(slots, place)
        return feeder

    def _init(self, slots: Sequence[Slot], place: Place | None) -> None:
        self.slots = list(slots)
        self.place = place if place is not None else CPUPlace()

    @property
    def feed_names(self) -> list[str]:
        """The names of the variables, in the order of a sample's fields."""
        return [slot.name for slot in self.slots]

    def feed(self, iterable: Iterable[Sequence[Any]]) -> Feed:
        """Convert one mini-batch: name -> tensor."""
        return self._convert(iterable, self.place)

    def feed_parallel(
        self, iterable: Sequence[Iterable[Sequence[Any]]], num_places: int | None = None
    ) -> Iterator[Feed]:
        """Convert several mini-batches, one per device."""
        places = self._places(num_places)
        if len(iterable) != len(places):
            raise ValueError(
                f"feed_parallel takes one mini-batch per device: there are {len(places)} devices, "
                f"but {len(iterable)} mini-batches."
            )
        for place, samples in zip(places, iterable, strict=True):
            yield self._convert(samples, place)

    def decorate_reader(
        self,
        reader: Reader,
        multi_devices: bool,
        num_places: int | None = None,
        drop_last: bool = True,
    ) -> Callable[[], Iterator[Feed | list[Feed]]]:
        """Return a reader of feeds; with `multi_devices` of lists with one feed per device.

        Mini-batches that are left over at the end, too few for all devices, are dropped; with
        `drop_last=False` they are an error.
        """

        def feeds() -> Iterator[Feed | list[Feed]]:
            if not multi_devices:
                for samples in reader():
                    yield self.feed(samples)
                return
            count = len(self._places(num_places))
            for group in in_groups(reader(), count):
                if len(group) == count:
                    yield list(self.feed_parallel(group, count))
                elif not drop_last:
                    raise ValueError(
                        f"The reader ended with {len(group)} mini-batch(es) left for {count} "
                        "devices; pass drop_last=True to drop them."
                    )

        return feeds

    def _convert(self, samples: Iterable[Sequence[Any]], place: Place) -> Feed:
        converters = [SlotConverter(slot, place) for slot in self.slots]
        for sample in samples:
            if len(sample) != len(converters):
                raise ArgumentError(
                    f"The number of fields in data ({len(sample)}) does not match "
                    f"len(feed_list) ({len(converters)}): {', '.join(self.feed_names)}."
                )
            for converter, field in zip(converters, sample, strict=True):
                converter.feed(field)
        return {converter.slot.name: converter.done() for converter in converters}

    def _places(self, num_places: int | None) -> list[Place]:
        if isinstance(self.place, CUDAPlace):
            count = max(1, device.gpu_count()) if num_places is None else int(num_places)
            return [CUDAPlace(i) for i in range(count)]
        return [CPUPlace() for _ in range(cpu_num() if num_places is None else int(num_places))]
