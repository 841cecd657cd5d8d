"""What goes wrong with saved files.

Both errors are RuntimeErrors too: that is what Paddle raises, and scripts catch, when a load fails.
"""

from __future__ import annotations


class FormatError(ValueError, RuntimeError):
    """A file is truncated, damaged, of another format, or holds something it must not.

    The message always begins with the file, so that it is useful without a traceback.
    """

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source
        self.problem = problem


class MissingFileError(FileNotFoundError, RuntimeError):
    """A file that has to be loaded is not there."""
