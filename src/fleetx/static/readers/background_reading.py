"""Prefetching in a background thread, with a bounded queue and a clean shutdown.

`Channel` is a queue between a producer and a consumer; either side can close it.
`BackgroundIterator` runs an iterable in a thread. The thread ends when the data ends, when
`close()` is called, and when the iterator is garbage-collected. `next()` re-raises exceptions of
the iterable, with their traceback.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Channel(Generic[T]):
    """A bounded queue (capacity 0: unbounded) that both sides can close."""

    def __init__(self, capacity: int = 0) -> None:
        self._capacity = capacity
        self._items: deque[T] = deque()
        # Reentrant: the garbage collector may close the channel in any thread, at any point.
        self._changed = threading.Condition(threading.RLock())
        self._finished = False
        self._closed = False
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None

    def put(self, item: T) -> bool:
        """Add an item, waiting for room; False when the channel is finished or closed."""
        with self._changed:
            while not self._ended and self._capacity and len(self._items) >= self._capacity:
                self._changed.wait()
            if self._ended:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    @property
    def _ended(self) -> bool:
        return self._finished or self._closed

    def __len__(self) -> int:
        """Return the number of queued items."""
        return len(self._items)

    def finish(self, error: BaseException | None = None) -> None:
        """Signal the end of the items; an error is raised after the queued items."""
        with self._changed:
            if not self._finished:
                self._finished = True
                self._error = error
                self._traceback = error.__traceback__ if error is not None else None
            self._changed.notify_all()

    def close(self) -> None:
        """Close both sides: `put` returns False, `get` ends, queued items are dropped."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def get(self) -> T:
        """Return the next item, waiting for it; StopIteration at the end."""
        with self._changed:
            while not self._items and not self._ended:
                self._changed.wait()
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            if self._error is not None and not self._closed:
                # The stored traceback keeps a repeated raise from growing it.
                raise self._error.with_traceback(self._traceback)
            raise StopIteration

    def peek(self) -> T | None:
        """Return the next item without removing it, None if it is not available yet."""
        with self._changed:
            return self._items[0] if self._items else None

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.get()


def pump(source: Callable[[], Iterable[Any]], channel: Channel[Any]) -> None:
    """Put all items of `source()` into the channel, until they end or the channel is closed."""
    iterator: Iterator[Any] | None = None
    try:
        iterator = iter(source())
        for item in iterator:
            if not channel.put(item):
                break
        channel.finish()
    except BaseException as error:
        channel.finish(error)
    finally:
        # Runs the source's own clean-up in the thread that ran the source.
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def start_thread(target: Callable[..., None], *args: Any, name: str) -> threading.Thread:
    """Start a daemon thread: a reader must not keep the interpreter from exiting."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    thread.start()
    return thread


def _close_in(process: int, channel: Channel[Any]) -> None:
    # A forked child has no reading thread, and may have inherited the lock in a locked state.
    if os.getpid() == process:
        channel.close()


class BackgroundIterator(Iterator[T]):
    """Iterate `source()` in a thread that runs at most `capacity` items ahead."""

    def __init__(
        self, source: Callable[[], Iterable[T]], capacity: int, name: str = "fleetx-reader"
    ) -> None:
        self._channel: Channel[T] = Channel(capacity)
        # The thread references only the channel, so that an abandoned iterator can be collected.
        self._finalizer = weakref.finalize(self, _close_in, os.getpid(), self._channel)
        self._thread = start_thread(pump, source, self._channel, name=name)

    def __next__(self) -> T:
        return self._channel.get()

    def peek(self) -> T | None:
        """Return the next item without consuming it, None if it is not available yet."""
        return self._channel.peek()

    @property
    def thread(self) -> threading.Thread:
        """The thread that reads."""
        return self._thread

    def close(self) -> None:
        """Stop reading and join the thread."""
        self._finalizer()
        if self._thread is not threading.current_thread():
            self._thread.join()
