"""A server's folder on disk: snapshots of its state, and the log of later requests.

    lock, epoch                    one server at a time, and how often it has been started
    snapshot-<n>/                  the state when journal-<n> began; whole once it has a manifest
    journal-<n>.log, <n+1>.log …   requests since then

A snapshot is a copy of the state, taken between two requests and written in the background while
the server continues; older files are removed when it is complete. A starting server loads the
newest complete snapshot and replays the log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fleetx.checkpoint import manifest
from fleetx.checkpoint.atomic import write_bytes
from fleetx.checkpoint.errors import FormatError
from fleetx.ps.server.journal import Journal, Policy, read, segment_path, segments
from fleetx.ps.server.state import ServerState
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import WireError

_log = logging.getLogger("fleetx.ps")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Durability:
    """Where and how a server keeps its state, in case it is killed."""

    folder: str | os.PathLike[str]
    """A folder of its own, on a disk that the restarted server can access."""
    fsync: Policy = "none"
    """See `fleetx.ps.server.journal` for the guarantees of each."""
    fsync_seconds: float = 1.0
    snapshot_seconds: float = 300.0
    """A snapshot is due after this time …"""
    snapshot_bytes: int = 256 << 20
    """… or when the log has reached this size, which bounds the time of a restart."""

    def __post_init__(self) -> None:
        for name in ("fsync_seconds", "snapshot_seconds", "snapshot_bytes"):
            if getattr(self, name) <= 0:
                raise ValueError(f"Durability.{name} must be more than 0.")


class Storage:
    """The folder of a running server."""

    def __init__(self, settings: Durability) -> None:
        self._settings = settings
        self._folder = Path(settings.folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self._folder)
        self.epoch = _next_epoch(self._folder)
        self._number = 0
        self._journal: Journal | None = None
        self._writer: threading.Thread | None = None
        self._last_snapshot = time.monotonic()

    def recover(self, state: ServerState) -> int:
        """Restore the state of the last server; return the number of replayed requests."""
        start = self._load_newest(state)
        found = [(number, path) for number, path in segments(self._folder) if number >= start]
        if found and [number for number, _ in found] != list(range(start, start + len(found))):
            raise FormatError(str(self._folder), f"lacks parts of the log from {start} on.")
        count = 0
        for number, path in found:
            for message in read(path, last=number == found[-1][0]):
                # A request that failed when it arrived fails again in the same way.
                with contextlib.suppress(WireError):
                    state.apply(message)
                count += 1
        self._number = found[-1][0] + 1 if found else start
        self._journal = self._new_journal(self._number)
        return count

    def _load_newest(self, state: ServerState) -> int:
        complete = []
        for path in self._folder.glob("snapshot-*"):
            if (path / manifest.MANIFEST).exists():
                complete.append((int(path.name.split("-")[1]), path))
            else:
                shutil.rmtree(path)
        if not complete:
            return 0
        number, path = max(complete)
        tensors, meta = manifest.load_state(path)
        if meta.get("workers") != state.workers:
            raise ValueError(
                f"{self._folder} holds the state of a job with {meta.get('workers')} workers, and "
                f"this one has {state.workers}: use another folder, or load a saved model."
            )
        state.restore(tensors, meta)
        return number

    def _new_journal(self, number: int) -> Journal:
        return Journal(
            segment_path(self._folder, number),
            self._settings.fsync,
            self._settings.fsync_seconds,
        )

    def append(self, message: Message) -> None:
        """Log a request before it is applied."""
        assert self._journal is not None
        self._journal.append(message.header, message.tensors)

    @property
    def is_snapshot_due(self) -> bool:
        """Whether the log is long or old enough."""
        if self._journal is None or (self._writer is not None and self._writer.is_alive()):
            return False
        old = time.monotonic() - self._last_snapshot > self._settings.snapshot_seconds
        return self._journal.size > self._settings.snapshot_bytes or (
            old and self._journal.size > 0
        )

    def snapshot(self, state: ServerState, *, wait: bool = False) -> None:
        """Copy the state and write it in the background (or now, with `wait`).

        Raises OSError if there is no room for it; the log then continues as before.
        """
        if self._writer is not None:
            self._writer.join()
        assert self._journal is not None
        self._last_snapshot = time.monotonic()
        number = self._number + 1
        fresh = self._new_journal(number)
        tensors, meta = state.capture()
        self._journal.close()
        self._journal, self._number = fresh, number
        path = self._folder / f"snapshot-{number:012d}"

        def write() -> None:
            try:
                manifest.save_state(path, tensors, meta)
            except OSError:
                shutil.rmtree(path, ignore_errors=True)  # it occupies the missing space
                raise
            self._remove_before(number)

        if wait:
            write()
        else:
            self._writer = threading.Thread(
                target=_logged, args=(write, self._folder), name="snapshot", daemon=True
            )
            self._writer.start()

    def _remove_before(self, number: int) -> None:
        for other, path in segments(self._folder):
            if other < number:
                path.unlink()
        for path in self._folder.glob("snapshot-*"):
            if int(path.name.split("-")[1]) < number:
                # Without a manifest, a partly removed snapshot is not mistaken for a complete one.
                (path / manifest.MANIFEST).unlink(missing_ok=True)
                shutil.rmtree(path)

    def close(self) -> None:
        """Finish pending writes."""
        if self._writer is not None:
            self._writer.join()
        if self._journal is not None:
            self._journal.close()
        os.close(self._lock)


def _logged(write: Callable[[], None], folder: Path) -> None:
    try:
        write()
    except OSError as error:
        _log.error("A snapshot in %s failed and will be tried again: %s.", folder, error)


def _lock(folder: Path) -> int:
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise RuntimeError(
            f"{folder} is in use by another parameter server; give every server its own folder."
        ) from error
    return descriptor


def _next_epoch(folder: Path) -> int:
    path = folder / "epoch"
    text = path.read_text().strip() if path.exists() else "0"
    if not text.isdigit():
        raise FormatError(str(path), f"holds {text!r} instead of a number.")
    write_bytes(path, f"{int(text) + 1}\n".encode())
    return int(text) + 1
