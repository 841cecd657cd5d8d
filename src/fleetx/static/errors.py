"""Errors that programs and their input raise.

Some carry several base classes: scripts written for Paddle catch `core.EnforceNotMet`,
`AssertionError` or `SystemError` in places where Python code would expect a `ValueError`.
"""

from __future__ import annotations


class EOFException(Exception):
    """A reader of the program has no more data in this pass; call its `reset()`."""


class NotFiniteError(FloatingPointError):
    """`stop_on_nan` ended training because a value became infinite or NaN; no op failed."""


class EnforceNotMet(RuntimeError):
    """The engine rejected a value; base of errors that Paddle raises from its C++ core."""


class ShapeError(EnforceNotMet, ValueError):
    """The shapes or types given to an op do not fit; the message names op, variables and shapes."""


class ExecutionError(EnforceNotMet, ValueError):
    """An op failed while a program ran; the message names the op and its variables."""


class FeedError(EnforceNotMet, ValueError):
    """A fed value does not match the declaration of its variable."""


class UnknownTypeError(TypeError, ValueError):
    """A name or object that is not an element type."""


class InvalidLoDError(EnforceNotMet, ValueError):
    """Sequence lengths that do not fit together, or do not fit the data."""


class ArgumentError(ValueError, AssertionError):
    """A wrong argument or order of calls where Paddle raises AssertionError."""


class ReaderProcessError(EnforceNotMet, SystemError, ValueError):
    """A reader failed in its subprocess; `__cause__` is the exception that it raised."""


class DataFormatError(ValueError):
    """A line or file of input data that cannot be read; the message says where it is."""
