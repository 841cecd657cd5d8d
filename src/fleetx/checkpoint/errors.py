"""The one exception that every reader of saved files raises for bytes it cannot accept."""

from __future__ import annotations


class FormatError(ValueError):
    """A file is truncated, damaged, of another format, or holds something it must not.

    The message always begins with the file, so that it is useful without a traceback.
    """

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source
        self.problem = problem
