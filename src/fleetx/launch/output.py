"""The workers' output: written to log files first, and copied from there to the terminal.

A worker writes directly to its own log, so nothing is lost if the launcher dies. A thread copies
the logs to stdout as they grow: a blocked terminal must not stop the launcher from monitoring.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from fleetx.launch.console import log

_POLL = 0.05
_CHUNK = 1 << 16


class Follower:
    """Thread that copies growing log files to a descriptor, by whole lines if they get a prefix."""

    def __init__(self, sources: Sequence[tuple[Path, int, str]], target: int = 1) -> None:
        """Follow (file, offset to start at, prefix) for each source."""
        self._sources = [_Source(path, offset, prefix) for path, offset, prefix in sources]
        self._target = target
        self._ending = threading.Event()
        self.broken = threading.Event()
        """Set when the reader of the output has closed it."""
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def finish(self, patience: float = 5.0) -> None:
        """Copy the rest and stop; give up if the terminal is blocked."""
        self._ending.set()
        self._thread.join(patience)

    def _run(self) -> None:
        try:
            while True:
                ending = self._ending.wait(_POLL)  # checked before reading, so nothing is missed
                for source in self._sources:
                    self._write(source.read(at_end=ending))
                if ending:
                    return
        except BrokenPipeError:
            self.broken.set()
        except OSError as error:
            log.error("The output can no longer be shown: %s; the logs have it.", error.strerror)
        finally:
            for source in self._sources:
                source.close()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._target, view) :]


class _Source:
    """A log file, read from where the last read stopped."""

    def __init__(self, path: Path, offset: int, prefix: str) -> None:
        self._file = path.open("rb", buffering=0)
        self._file.seek(offset)
        self._prefix = prefix.encode()
        self._rest = b""

    def read(self, at_end: bool) -> bytes:
        parts = []
        while chunk := self._file.read(_CHUNK):
            parts.append(chunk)
        data = self._rest + b"".join(parts)
        if not self._prefix:
            return data
        lines = data.splitlines(keepends=True)
        # Lines of different workers must not mix: hold back an incomplete line.
        self._rest = b""
        if lines and not lines[-1].endswith((b"\n", b"\r")):
            if at_end:
                lines[-1] += b"\n"
            else:
                self._rest = lines.pop()
        return b"".join(self._prefix + line for line in lines)

    def close(self) -> None:
        self._file.close()
