"""ProgramReader: a data source that is part of a program, instead of a feed.

A background thread prefetches between `start()` and `reset()`. Each point where a program reads is
a `ReadPort`, listed in `program.binding.readers`; `Executor.run` takes one batch from every port
whose variables it needs.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from fleetx.static.errors import EOFException
from fleetx.static.readers.background_reading import BackgroundIterator, Channel
from fleetx.static.readers.batch import Reader
from fleetx.static.readers.data_feeder import Feed, Slot
from fleetx.static.readers.generator_source import GeneratorSource
from fleetx.static.readers.lod_tensor import LoDTensor


class PushQueue:
    """A reader's queue, to which another thread of the script pushes batches."""

    def __init__(self, capacity: int) -> None:
        self._channel: Channel[list[LoDTensor]] = Channel(capacity)

    def push(self, tensors: Sequence[LoDTensor]) -> bool:
        """Add a batch, waiting for room; False once the queue is closed."""
        return self._channel.put(list(tensors))

    def close(self) -> None:
        """Signal the end of the data; queued batches are still read."""
        self._channel.finish()

    def size(self) -> int:
        """Return the number of queued batches."""
        return len(self._channel)

    def pop(self) -> list[LoDTensor]:
        """Return the next batch, waiting for it; StopIteration at the end."""
        return self._channel.get()


class ProgramReader:
    """A named source of batches with passes: `start()`, batches, EOFException, `reset()`."""

    def __init__(
        self, name: str, slots: Sequence[Slot], capacity: int, source: GeneratorSource | None = None
    ) -> None:
        if not isinstance(capacity, int) or capacity <= 0:
            raise ValueError(f"Reader {name!r} needs a capacity of at least 1, not {capacity!r}.")
        self.name = name
        self.slots = list(slots)
        self.capacity = capacity
        # Whether the last batches are dropped if they are too few for all places.
        self.drop_last = True
        self._source = source if source is not None else GeneratorSource(slots)
        self._running: BackgroundIterator[list[LoDTensor]] | None = None
        self._ended = False
        self._pushed: PushQueue | None = None

    # -- data source, under Fluid's names --------------------------------------------------------
    def decorate_paddle_reader(self, reader: Reader) -> None:
        """Take mini-batches (lists of samples) from `reader`."""
        self._source.set_sample_lists(reader)

    def decorate_batch_generator(self, reader: Reader) -> None:
        """Take ready arrays or LoDTensors, one per variable, from `reader`."""
        self._source.set_batches(reader)

    decorate_sample_list_generator = decorate_paddle_reader
    decorate_tensor_provider = decorate_batch_generator

    @property
    def queue(self) -> PushQueue:
        """A queue to push batches to, instead of giving the reader a generator and `start()`."""
        if self._pushed is None:
            self._pushed = PushQueue(self.capacity)
        return self._pushed

    @property
    def thread(self) -> threading.Thread | None:
        """The prefetching thread, None before `start()`."""
        return self._running.thread if self._running is not None else None

    # -- passes ----------------------------------------------------------------------------------
    def start(self) -> None:
        """Start a pass: prefetch up to `capacity` batches."""
        if not self._source.is_set:
            raise RuntimeError(
                f"Reader {self.name!r} has no data source: decorate it with a generator first."
            )
        if self._running is not None and not self._ended:
            raise RuntimeError(
                f"Reader {self.name!r} has been started already: call reset() before start()."
            )
        self.reset()
        self._running = BackgroundIterator(
            self._source.batches, self.capacity, name=f"fleetx-reader-{self.name}"
        )

    def reset(self) -> None:
        """End the pass; the next `start()` starts with the first batch."""
        running, self._running, self._ended, self._pushed = self._running, None, False, None
        if running is not None:
            running.close()

    def peek(self) -> list[LoDTensor] | None:
        """Return the next batch without consuming it, None if it is not available yet."""
        return None if self._running is None else self._running.peek()

    def next_batch(self) -> list[LoDTensor]:
        """Return the next batch; raise EOFException at the end of the data."""
        if self._running is None and (self._pushed is None or self._source.is_set):
            raise RuntimeError(
                f"Reader {self.name!r} is not started: call its start() before running the "
                "program, or feed its variables."
            )
        try:
            return self.queue.pop() if self._running is None else next(self._running)
        except StopIteration:
            self._ended = True
            raise EOFException(
                f"There is no next data: reader {self.name!r} is at its end; call its reset()."
            ) from None


class ReadPort:
    """A point where a program reads: the variables that a batch's tensors become."""

    def __init__(self, reader: ProgramReader, output_names: Sequence[str]) -> None:
        self.reader = reader
        self.output_names = list(output_names)

    def next_feed(self) -> Feed:
        """Return the next batch by variable name; see `ProgramReader.next_batch`."""
        return dict(zip(self.output_names, self.reader.next_batch(), strict=True))

    def attach(self, program: Any) -> None:
        """Attach the port to a program."""
        program.binding.readers.append(self)
