"""Which checkpoints are removed after a new one is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Retention:
    """The newest checkpoints stay, and those whose number is a multiple of `every`."""

    keep: int = 3
    every: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.keep, int) or self.keep < 1:
            raise ValueError(f"keep must be a whole number of at least 1, not {self.keep!r}.")
        if self.every is not None and (not isinstance(self.every, int) or self.every < 1):
            raise ValueError(
                f"every must be None or a whole number of at least 1, not {self.every!r}."
            )

    def outdated(self, numbers: Iterable[int], is_whole: Callable[[int], bool]) -> list[int]:
        """Return the numbers to remove, oldest first.

        Only whole checkpoints count, so that damaged ones never displace the newest whole one.
        """
        kept, found = 0, []
        for number in sorted(numbers, reverse=True):
            if kept < self.keep:
                kept += is_whole(number)
            elif self.every is None or number % self.every:
                found.append(number)
        return sorted(found)
