"""`fetch` of a data set: nothing is downloaded, so it only asks for a sample."""

from collections.abc import Callable
from typing import Any


def fetch_of(*makers: Callable[[], Any]) -> Callable[[], None]:
    """Return a function that reads a sample of each part, which fails where a file is missing."""

    def fetch() -> None:
        """Check that the files of the data set are there."""
        for maker in makers:
            next(iter(maker()()))

    return fetch
