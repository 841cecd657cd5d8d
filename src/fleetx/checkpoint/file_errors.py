"""Errors of saved files.

Both are also RuntimeErrors: that is what Paddle raises, and scripts catch, if loading fails.
"""

from __future__ import annotations


class FormatError(ValueError, RuntimeError):
    """An error for a file that is truncated, damaged, of another format, or has forbidden content.

    The message always starts with the file name, so that it is useful without a traceback.
    """

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source
        self.problem = problem


class MissingFileError(FileNotFoundError, RuntimeError):
    """An error for a file that is required but does not exist."""
