"""Saving while training continues: a thread that writes one checkpoint at a time.

Hashing and writing release the interpreter's lock, so a thread suffices. It is not a daemon: the
interpreter waits for it at the end of the script. An error is raised by the next call that waits,
or, if there is none, ends the program with exit code 1.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from fleetx import comm
from fleetx.comm.side_group import SideGroup
from fleetx.comm.world import hold
from fleetx.fleet.saving.copy_buffer import CopyBuffer


class BackgroundSaving:
    """The background saves of a process: at most one is in flight."""

    def __init__(self) -> None:
        self.buffer = CopyBuffer()
        self._thread: threading.Thread | None = None
        self._folder: Path | str | None = None
        self._error: BaseException | None = None
        self._group: SideGroup | None = None

    def gather(self, number: int) -> list[int]:
        """Return the numbers of all workers, exchanged through a separate group."""
        assert self._group is not None
        return self._group.gather(number)

    def connect(self) -> None:
        """Connect the threads of all workers, which must call it together."""
        if self._group is None and comm.is_connected():
            self._group = SideGroup()
            hold(self)

    def start(self, write: Callable[[], Path | str]) -> None:
        """Run `write` in the background; the previous save must have been waited for."""
        assert self._thread is None
        atexit.unregister(self._report_at_exit)
        atexit.register(self._report_at_exit)
        self._thread = threading.Thread(target=self._run, args=(write,), name="fleetx-checkpoint")
        self._thread.start()

    def _run(self, write: Callable[[], Path | str]) -> None:
        try:
            self._folder = write()
        except BaseException as error:  # raised where the script waits
            self._error = error

    def wait(self) -> Path | str | None:
        """Wait for the save in flight; raise its error, or return the folder of the last one."""
        self._join()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._folder

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def leave(self) -> None:
        """Release the group, after the save in flight."""
        self._join()
        self._group = None

    def _report_at_exit(self) -> None:
        """Print an error that no call has waited for, and let the program exit with a failure."""
        self._join()
        if self._error is None:
            return
        print("fleetx: the last checkpoint could not be written:", file=sys.stderr)
        traceback.print_exception(self._error)
        if not hasattr(sys, "last_value"):  # otherwise the program fails already
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)
