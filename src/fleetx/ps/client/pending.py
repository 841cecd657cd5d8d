"""Requests in progress, and the conversion of their replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from fleetx.ps.wire.assembly import Message

Result = TypeVar("Result")


class Pending(Generic[Result]):
    """Requests in progress, and the function that turns their replies into a result."""

    def __init__(
        self, futures: Sequence[Future[Message]], finish: Callable[[list[Message]], Result]
    ) -> None:
        self._futures = futures
        self._finish = finish

    @property
    def is_done(self) -> bool:
        """Whether `wait` would return immediately."""
        return all(future.done() for future in self._futures)

    def wait(self) -> Result:
        """Wait for all replies and return the result; raise the error of a failed request."""
        return self._finish([future.result() for future in self._futures])


def nothing(messages: list[Message]) -> None:
    """Return None: the replies are ignored."""
    return
