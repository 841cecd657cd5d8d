"""`fetch` of a data set: downloads nothing, and only reads a sample."""

from collections.abc import Callable
from typing import Any


def fetch_of(*makers: Callable[[], Any]) -> Callable[[], None]:
    """Return a function that reads a sample of each part, and fails if a file is missing."""

    def fetch() -> None:
        """Check that the files of the data set exist."""
        for maker in makers:
            next(iter(maker()()))

    return fetch
