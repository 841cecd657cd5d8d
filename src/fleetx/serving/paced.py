"""Background work in short slices with rests, so that threads with requests hardly wait for it.

The scheduler does not interrupt a busy thread for one that wakes up before the next timer tick,
which is up to 4 ms away, and a request wakes several threads one after another. Work that is done
in fractions of a millisecond frees its core, and Python's lock, in between.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SLICE = 0.0002
"""The CPU time after which work rests; a single call of C code may take longer."""
REST = 3.0
"""The length of a rest, in slices."""
_LONGEST_SLICE = 0.001
_LONGEST_REST = 0.01


class Stopped(BaseException):
    """Raised in work that is not wanted any more; not an Exception, which it might handle."""


class Pace:
    """The pace of one thread's work."""

    def __init__(self) -> None:
        self._stopped = False

    def stop(self) -> None:
        """End the work at its next rest, from any thread."""
        self._stopped = True

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Run the `with` block in slices, with rests in between.

        The block need not cooperate: Python calls a profiling function of this thread at every
        call, and that function sleeps when a slice is over. Other threads are not affected.
        """
        before = sys.getprofile()
        self._begin(SLICE)
        sys.setprofile(self._on_call)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _begin(self, seconds: float) -> None:
        self._slice, self._worked = seconds, time.thread_time()
        self._look_at = time.perf_counter() + seconds

    def _on_call(self, *_: Any) -> None:
        now = time.perf_counter()
        if now < self._look_at:  # the CPU time takes longer to get
            return
        # Waiting for a core or for Python's lock is not work.
        worked = time.thread_time() - self._worked
        if worked < self._slice:
            self._look_at = now + self._slice - worked
            return
        if self._stopped:
            raise Stopped
        time.sleep(min(REST * worked, _LONGEST_REST))
        # On a busy machine rests are longer, and so are slices.
        rested = time.perf_counter() - now
        self._begin(min(max(rested / REST, SLICE), _LONGEST_SLICE))
