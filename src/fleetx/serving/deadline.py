"""A time limit for code in another thread: when it expires, an exception is raised there.

Python raises it between two instructions, so it stops an endless loop; a single kernel call is not
interrupted, only what follows it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


class DeadlineExceeded(BaseException):
    """Raised in the thread; not an Exception, so that a model's own handlers do not stop it."""


class Deadline:
    """Runs one function at a time, which another thread can interrupt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._interrupted = False
        self._number = 0

    @property
    def number(self) -> int:
        """The number of the call that runs, or of the last one."""
        return self._number

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function; raise DeadlineExceeded if it was interrupted."""
        with self._lock:
            self._thread = threading.get_ident()
            self._interrupted = False
            self._number += 1
        try:
            return function(*args)
        finally:
            with self._lock:
                self._thread = None
            if self._interrupted and not isinstance(sys.exception(), DeadlineExceeded):
                self._await_interruption()

    def interrupt(self, number: int) -> None:
        """End the call of this number, if it still runs."""
        with self._lock:
            if self._thread is not None and self._number == number:
                self._interrupted = True
                _request(self._thread)

    @staticmethod
    def _await_interruption() -> None:
        """Let the exception that was requested be raised here, not in the code that follows.

        Withdrawing it would leave Python's order to look for it in force: every thread of the
        process would be slower, and in an endless loop if it is profiled (Python 3.11).
        """
        try:
            _request(threading.get_ident())  # again: the function may have caught the first one
            while True:
                time.sleep(0)
        except DeadlineExceeded:
            pass


def _request(thread: int) -> None:
    """Raise DeadlineExceeded in a thread, once."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(DeadlineExceeded)
    )
