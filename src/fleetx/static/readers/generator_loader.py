"""Loaders over user-written generators: `DataLoader.from_generator` and `PyReader`.

An iterable loader yields feeds: a list with one dict (or list) of tensors per place. A
non-iterable one is part of the program: between `start()` and `reset()` every `exe.run` without
feed takes the next batch, until EOFException at the end of the pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fleetx.static import unique_name
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.default_programs import default_main_program
from fleetx.static.readers.background_reading import BackgroundIterator
from fleetx.static.readers.batch import Reader, in_groups
from fleetx.static.readers.data_feeder import Feed, Slot, slot_of
from fleetx.static.readers.generator_source import GeneratorSource, regular_array
from fleetx.static.readers.lod_tensor import LoDTensor
from fleetx.static.readers.look_ahead import AnnouncingFeed
from fleetx.static.readers.program_reader import ProgramReader, PushQueue, ReadPort
from fleetx.static.readers.reader_ops import append_double_buffer, append_read, append_reader
from fleetx.static.run.place import Place

Batch = list[Any]

# Loaders have a name generator of their own: creating one must not change parameter names.
_loader_names = unique_name.UniqueNameGenerator()


class DataLoaderBase:
    """Base of all loaders: calling one returns an iterable."""

    def __call__(self) -> Any:
        """Return the loader itself: `for batch in loader():`."""
        return self

    @classmethod
    def _check_input_array(cls, item: Any) -> Any:
        return regular_array(item, "The input")

    def next(self) -> Any:
        """Return the next item."""
        return self.__next__()

    def __iter__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__() and __next__().")

    def __next__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__() and __next__().")


class GeneratorLoader(DataLoaderBase):
    """Loads batches from a generator; a background thread prefetches up to `capacity` of them."""

    def __init__(
        self,
        feed_list: Sequence[Any] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> None:
        if not capacity:
            raise ValueError(
                "A generator loader needs a capacity: the number of batches to prefetch."
            )
        if not feed_list:
            raise ArgumentError("A generator loader of a program needs feed_list: its variables.")
        slots = [slot_of(variable) for variable in feed_list]
        self.capacity = capacity
        self.iterable = iterable
        self.use_double_buffer = use_double_buffer
        self._return_list = return_list
        self._drop_last = drop_last
        self._source = GeneratorSource(slots, use_multiprocess)
        self._places: list[Place] = []
        self._own_pass: Iterator[Batch] | None = None
        self._reader: ProgramReader | None = None
        if not iterable:
            self._reader = self._join_program(slots)

    def _join_program(self, slots: Sequence[Slot]) -> ProgramReader:
        """Attach this loader to the default main program, and append its ops."""
        program = default_main_program()
        block = program.current_block()
        # All three names are generated, in this order, even if they are not used.
        keys = ("lod_tensor_blocking_queue", "create_py_reader", "double_buffer")
        queue, name, buffer = (_loader_names(key) for key in keys)
        append_reader(block, name, queue, slots)
        if self.use_double_buffer:
            append_double_buffer(block, buffer, name)
            name = buffer
        outputs = [slot.name for slot in slots]
        append_read(block, name, outputs)
        reader = ProgramReader(name, slots, self.capacity, self._source)
        reader.drop_last = self._drop_last
        ReadPort(reader, outputs).attach(program)
        return reader

    # -- data source -----------------------------------------------------------------------------
    def set_sample_generator(
        self, reader: Reader, batch_size: int, drop_last: bool = True, places: Any = None
    ) -> GeneratorLoader:
        """Take single samples from `reader` and group them."""
        self._source.set_samples(reader, batch_size, drop_last)
        return self._set_places(places)

    def set_sample_list_generator(self, reader: Reader, places: Any = None) -> GeneratorLoader:
        """Take mini-batches (lists of samples) from `reader`."""
        self._source.set_sample_lists(reader)
        return self._set_places(places)

    def set_batch_generator(self, reader: Reader, places: Any = None) -> GeneratorLoader:
        """Take ready arrays or LoDTensors, one per variable, from `reader`."""
        self._source.set_batches(reader)
        return self._set_places(places)

    def _set_places(self, places: Any) -> GeneratorLoader:
        if self.iterable:
            if places is None:
                raise ArgumentError(
                    "An iterable loader needs places: where its batches go, such as CPUPlace()."
                )
            self._places = as_places(places)
        return self

    # -- iterable --------------------------------------------------------------------------------
    def __iter__(self) -> Iterator[Batch]:
        """Start a pass; its thread ends with the pass, or when the iterator is dropped."""
        if not self.iterable:
            raise ArgumentError(
                "This loader has iterable=False: use start(), exe.run() and reset()."
            )
        if not self._source.is_set:
            raise ArgumentError("The loader has no data source: call one of its set_* methods.")
        batches = BackgroundIterator(self._source.batches, self.capacity, name="fleetx-loader")
        names = None if self._return_list else [slot.name for slot in self._source.slots]
        return group_by_place(batches, self._places, names, self._drop_last)

    def __next__(self) -> Batch:
        """Return the next batch of the loader's own pass."""
        if self._own_pass is None:
            self._own_pass = iter(self)
        try:
            return next(self._own_pass)
        except StopIteration:
            self._own_pass = None
            raise

    def _reset(self) -> None:
        """End the pass of `next()` or of `start()`; a pass of `iter()` ends with its loop."""
        self._own_pass = None
        if self._reader is not None:
            self._reader.reset()

    # -- part of a program -----------------------------------------------------------------------
    def start(self) -> None:
        """Start a pass of a non-iterable loader."""
        self._program_reader("start").start()

    def reset(self) -> None:
        """End the pass of a non-iterable loader."""
        self._program_reader("reset").reset()

    @property
    def queue(self) -> PushQueue:
        """The queue of a non-iterable loader."""
        return self._program_reader("queue").queue

    def _program_reader(self, method: str) -> ProgramReader:
        if self._reader is None:
            raise ArgumentError(
                f"{method}() is for loaders with iterable=False; iterate over this one."
            )
        return self._reader


class PyReader(GeneratorLoader):
    """A GeneratorLoader under the names of `fluid.io.PyReader`."""

    def __init__(
        self,
        feed_list: Sequence[Any] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        super().__init__(feed_list, capacity, use_double_buffer, iterable, return_list)

    @property
    def _loader(self) -> PyReader:
        return self  # scripts written for Fluid reset a reader by `reader._loader._reset()`

    def decorate_sample_generator(
        self,
        sample_generator: Reader,
        batch_size: int,
        drop_last: bool = True,
        places: Any = None,
    ) -> None:
        """Take single samples and group them."""
        self.set_sample_generator(sample_generator, batch_size, drop_last, places)

    decorate_sample_list_generator = GeneratorLoader.set_sample_list_generator
    decorate_batch_generator = GeneratorLoader.set_batch_generator


def as_places(places: Any) -> list[Place]:
    """Return a list of places for one place or several."""
    items = list(places) if isinstance(places, (list, tuple)) else [places]
    for item in items:
        if not isinstance(item, Place):
            raise TypeError(f"places must hold CPUPlace() or CUDAPlace(i), not {item!r}.")
    if not items:
        raise ValueError("places is empty; give at least CPUPlace().")
    return items


def _announcing(
    batches: BackgroundIterator[Sequence[LoDTensor]], place: Place, names: Sequence[str]
) -> Iterator[Batch]:
    """Yield feeds for one place; each can return the next one."""

    def as_feed(batch: Sequence[LoDTensor]) -> Feed:
        return dict(zip(names, batch, strict=True))

    for batch in batches:
        yield [AnnouncingFeed(as_feed(_placed(batch, place)), batches, as_feed)]


def _placed(batch: Sequence[LoDTensor], place: Place) -> list[LoDTensor]:
    """Assign the tensors of a batch to a place."""
    for tensor in batch:
        tensor.set(tensor.value, place, zero_copy=True)
    return list(batch)


def group_by_place(
    batches: Iterable[Sequence[LoDTensor]],
    places: Sequence[Place],
    names: Sequence[str] | None,
    drop_last: bool,
) -> Iterator[Batch]:
    """Yield lists with one batch per place: dicts by name, or lists if there are no names."""
    if names is not None and len(places) == 1 and isinstance(batches, BackgroundIterator):
        yield from _announcing(batches, places[0], names)
        return
    for group in in_groups(batches, len(places), drop_last):
        rows = [_placed(batch, place) for batch, place in zip(group, places, strict=False)]
        yield rows if names is None else [dict(zip(names, row, strict=True)) for row in rows]
