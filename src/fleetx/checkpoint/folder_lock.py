"""A lock on a folder that several processes write to, which names its holder.

The lock is the kernel's (flock), so it is released when its process ends in any way; the file's
text names the holder for processes that wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

_log = logging.getLogger("fleetx.checkpoint")
NAME = ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; wait for another holder, and log who it is."""
    descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            _log.warning("%s is locked by %s; waiting for it.", folder, holder or "another")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        now = datetime.now().isoformat(timespec="seconds")
        os.ftruncate(descriptor, 0)
        os.pwrite(
            descriptor, f"process {os.getpid()} on {socket.gethostname()} since {now}\n".encode(), 0
        )
        yield
    finally:
        # Closing would not release it if a process was forked in the meantime.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
