"""The feed after this one, where it has been read already.

Training with parameter servers begins to fetch the rows of the next batch while it computes this
one. So feeds that come from a reader running ahead know what comes after them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fleetx.static.graph.program import Program
from fleetx.static.readers.background import BackgroundIterator
from fleetx.static.readers.data_feeder import Feed


class AnnouncingFeed(dict[str, Any]):
    """A feed that can tell the feed after it."""

    def __init__(
        self,
        feed: Feed,
        source: BackgroundIterator[Any],
        as_feed: Callable[[Any], Feed] = lambda feed: feed,
    ) -> None:
        """`source` gives the feeds after this one, as `as_feed` makes them of its items."""
        super().__init__(feed)
        # Not held: a reader ends when nobody iterates it any more, whoever keeps a batch.
        self._source = weakref.ref(source)
        self._as_feed = as_feed

    def following(self) -> Feed | None:
        """Return the next feed, None if it has not been read yet or there is none."""
        source = self._source()
        item = None if source is None else source.peek()
        return None if item is None else self._as_feed(item)


def announcing(feeds: Iterable[Feed]) -> Iterator[Feed]:
    """Give feeds that tell the feed after them, if they are read ahead."""
    source = iter(feeds)
    if not isinstance(source, BackgroundIterator):
        yield from source
        return
    for feed in source:
        yield AnnouncingFeed(feed, source)


def following_feed(program: Program, feed: Any) -> Feed | None:
    """Return what the run after this one will be fed with, if it is known.

    `feed` is what this run was given; what its program reads itself has been taken already.
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
