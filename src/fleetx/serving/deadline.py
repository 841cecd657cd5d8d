"""A time limit for code in another thread: when it expires, an exception is raised there.

Python raises it between two instructions, so it stops an endless loop; a single kernel call is not
interrupted, only what follows it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any


class DeadlineExceeded(BaseException):
    """Raised in the thread; not an Exception, so that a model's own handlers do not stop it."""


class Deadline:
    """Runs one function at a time, which another thread can interrupt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._number = 0

    @property
    def number(self) -> int:
        """The number of the call that runs, or of the last one."""
        return self._number

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function; raise DeadlineExceeded if it was interrupted."""
        try:
            with self._lock:
                self._thread = threading.get_ident()
                self._number += 1
            return function(*args)
        finally:
            with self._lock:
                if self._thread is not None:
                    # A pending exception must not be raised in other code.
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), None)
                self._thread = None

    def interrupt(self, number: int) -> None:
        """End the call of this number, if it still runs."""
        with self._lock:
            if self._thread is not None and self._number == number:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(DeadlineExceeded)
                )
