"""The order of a group's collectives, and a thread for those whose other members are late.

A collective runs in the thread that calls it: that is fastest. An asynchronous one waits only
briefly for the other members. If they are late it continues in a thread of the group, and all later
ones follow it there until the queue is empty. Otherwise workers that start collectives of two
groups in different orders, or send a message in between, would wait for each other forever.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from fleetx import torch_private

PATIENCE = 0.02
"""How many seconds an asynchronous call waits for other members before it returns."""

GRACE = 5.0
"""How many seconds a worker that ends, or leaves its group, waits for late members."""

_GLANCE = 0.1  # seconds between checks whether the worker ends

Call = Callable[[float], bool]
"""Runs a collective and returns whether it has ended. Given a patience in seconds other than 0, it
may return False before that; the same call, made again, resumes it."""


def done(result: Any) -> dist.Work:
    """Return the handle of a collective that has ended."""
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(result)
    return torch_private.work_of_future(future)


class LateWork(dist.Work):
    """A collective that continues in a thread, with the methods that torch.distributed calls."""

    def __init__(self, call: Call, result: Any) -> None:
        super().__init__()
        self.call = call
        self._result = result
        self._end: torch.futures.Future[Exception | None] = torch.futures.Future()
        # An exception that is set by itself would be seen by Python alone, and not by DDP.
        self._future = self._end.then(self._result_or_error)

    def finish(self, error: Exception | None) -> None:
        """Notify waiting callers that the collective has ended, or failed."""
        self._end.set_result(error)

    def _result_or_error(self, end: torch.futures.Future[Exception | None]) -> Any:
        error = end.value()
        if error is not None:
            raise error
        return self._result

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end; raise the error of the collective."""
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        """Return whether the collective has ended."""
        return self._future.done()

    def get_future(self) -> torch.futures.Future[Any]:
        """Return the future that has the result, or the error."""
        return self._future


class Turns:
    """The collectives of one group, which take turns in the order of their calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._late: deque[LateWork] = deque()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def run(self, call: Call, result: Any, may_return: bool) -> dist.Work:
        """Run a collective; if it may return early, its handle may be that of a late one."""
        with self._lock:
            if not self._late and call(PATIENCE if may_return else 0):
                return done(result)
            work = LateWork(call, result)
            self._late.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._go_on, name="fleetx-shm")
                self._thread.start()
        if not may_return:
            work.wait()
        return work

    def close(self, grace: float = GRACE) -> None:
        """Let late collectives end; after so many seconds they fail."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(grace)
        self._is_closed = True
        thread.join()

    def _go_on(self) -> None:
        while True:
            with self._lock:
                if not self._late:
                    self._thread = None
                    return
                work = self._late[0]
            error = self._complete(work.call)
            with self._lock:
                # Before those who wait go on: their next collective need not follow this one here.
                self._late.popleft()
            work.finish(error)

    def _complete(self, call: Call) -> Exception | None:
        """Run a collective to its end; return its error."""
        limit: float | None = None
        try:
            while not self._is_closed:
                if call(_GLANCE):
                    return None
                if not threading.main_thread().is_alive():  # it waits for this thread
                    limit = limit or time.monotonic() + GRACE
                    self._is_closed = time.monotonic() > limit
        except Exception as error:
            return error
        return RuntimeError("this worker has left the group before all others called a collective.")
