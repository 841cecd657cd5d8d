"""Look-ahead: the next feed, if it has been prefetched.

Training with parameter servers prefetches the rows of the next batch while the current one
computes. To this end, feeds of a prefetching reader can return the feed after them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fleetx.static.graph.program import Program
from fleetx.static.readers.background_reading import BackgroundIterator
from fleetx.static.readers.data_feeder import Feed


class AnnouncingFeed(dict[str, Any]):
    """A feed that can return the feed after it."""

    def __init__(
        self,
        feed: Feed,
        source: BackgroundIterator[Any],
        as_feed: Callable[[Any], Feed] = lambda feed: feed,
    ) -> None:
        """`source` holds the next feeds; `as_feed` converts its items to feeds."""
        super().__init__(feed)
        # A weak reference: a batch that is kept must not keep the reader running.
        self._source = weakref.ref(source)
        self._as_feed = as_feed

    def following(self) -> Feed | None:
        """Return the next feed, None if there is none or it has not been read yet."""
        source = self._source()
        item = None if source is None else source.peek()
        return None if item is None else self._as_feed(item)


def announcing(feeds: Iterable[Feed]) -> Iterator[Feed]:
    """Yield feeds that can return the feed after them, if they are prefetched."""
    source = iter(feeds)
    if not isinstance(source, BackgroundIterator):
        yield from source
        return
    for feed in source:
        yield AnnouncingFeed(feed, source)


def following_feed(program: Program, feed: Any) -> Feed | None:
    """Return the feed of the next run, if it is known.

    `feed` is that of the current run, whose batches of the program's readers are already taken.
    """
    if isinstance(feed, Sequence) and len(feed) == 1:
        feed = feed[0]
    if isinstance(feed, AnnouncingFeed):
        return feed.following()
    if feed or not program.binding.readers:
        return None
    found: Feed = {}
    for port in program.binding.readers:
        batch = port.reader.peek()
        if batch is None:
            return None
        found.update(zip(port.output_names, batch, strict=True))
    return found
