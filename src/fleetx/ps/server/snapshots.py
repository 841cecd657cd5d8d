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
import zlib
from collections.abc import Callable
from pathlib import Path

from fleetx.checkpoint import manifest
from fleetx.checkpoint.atomic import write_bytes
from fleetx.ps.server.journal import Journal, Policy, segment_path, segments
from fleetx.ps.server.journal_reading import DamagedLogError, LogReader, set_aside
from fleetx.ps.server.state import ServerState
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import WireError

_log = logging.getLogger("fleetx.ps")


class FolderInUseError(OSError, RuntimeError):
    """An error for a folder that another running server has locked."""


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
        self._lock = lock_folder(self._folder)
        self.epoch = _next_epoch(self._folder)
        self._number = 0
        self._journal: Journal | None = None
        self._writer: threading.Thread | None = None
        self._last_snapshot = time.monotonic()

    def recover(self, state: ServerState) -> int:
        """Restore the state of the last server; return the number of replayed requests."""
        start, chain = self._load_newest(state)
        log = LogReader(self._folder, start, chain)
        for message in log:
            # A request that failed when it arrived fails again in the same way.
            with contextlib.suppress(WireError):
                state.apply(message)
        self._number = log.next_number
        self._journal = self._new_journal(self._number, log.chain)
        return log.count

    def _load_newest(self, state: ServerState) -> tuple[int, int]:
        """Restore the newest snapshot; return the number and chain value of the log after it."""
        found = newest_snapshot(self._folder)
        if found is None:
            return 0, 0
        number, path = found
        tensors, meta = manifest.load_state(path, threads=min(4, os.cpu_count() or 1))
        if meta.get("workers") != state.workers:
            raise ValueError(
                f"{self._folder} holds the state of a job with {meta.get('workers')} workers, and "
                f"this one has {state.workers}: use another folder, or load a saved model."
            )
        state.restore(tensors, meta)
        return number, int(meta["chain"])

    def _new_journal(self, number: int, chain: int) -> Journal:
        return Journal(
            segment_path(self._folder, number),
            self._settings.fsync,
            self._settings.fsync_seconds,
            number=number,
            chain=chain,
        )

    def append(self, message: Message) -> None:
        """Log a request before it is applied."""
        assert self._journal is not None
        self._journal.append(message.header, message.tensors)

    @property
    def has_snapshot(self) -> bool:
        """Whether the folder has a complete snapshot."""
        return newest_snapshot(self._folder) is not None

    @property
    def is_snapshot_due(self) -> bool:
        """Whether the log is long or old enough."""
        if self._journal is None or (self._writer is not None and self._writer.is_alive()):
            return False
        old = time.monotonic() - self._last_snapshot > self._settings.snapshot_seconds
        return self._journal.size > self._settings.snapshot_bytes or (
            old and self._journal.records > 0
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
        fresh = self._new_journal(number, self._journal.chain)
        tensors, meta = state.capture()
        meta["chain"] = fresh.chain
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
        _log.error("A snapshot in %s failed and will be retried: %s.", folder, error)


def lock_folder(folder: Path) -> int:
    """Lock a server's folder for this process; return the descriptor that holds the lock."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise FolderInUseError(
            f"{folder} is in use by another parameter server; give every server its own folder."
        ) from error
    return descriptor


def _next_epoch(folder: Path) -> int:
    path = folder / "epoch"
    epoch = 1
    if path.exists():
        content = path.read_bytes()
        number = content.split(b" ")[0]
        if number.isdigit() and content == _epoch_line(int(number)):
            epoch = int(number) + 1
        else:
            # The clock is ahead of any counter, and an epoch only has to be higher than all before.
            epoch = time.time_ns() // 1_000_000
            _log.warning("%s is damaged; the epoch continues from the clock.", path)
    write_bytes(path, _epoch_line(epoch))
    return epoch


def _epoch_line(epoch: int) -> bytes:
    return f"{epoch} {zlib.crc32(str(epoch).encode()):08x}\n".encode()


def newest_snapshot(folder: Path) -> tuple[int, Path] | None:
    """Return the number and folder of the newest complete snapshot; remove incomplete ones."""
    complete = []
    for path in folder.glob("snapshot-*"):
        if (path / manifest.MANIFEST).exists():
            complete.append((int(path.name.split("-")[1]), path))
        else:
            shutil.rmtree(path)
    return max(complete, default=None)


def folders_of_servers(folder: Path) -> list[Path]:
    """Return the given folder of a server, or those of all servers in a job's folder."""
    # Servers that tables have moved to have folders of their own.
    found = [
        path.parent for pattern in ("*/lock", "*/*/lock") for path in sorted(folder.glob(pattern))
    ]
    if (folder / "lock").is_file():
        return [folder]
    if not found:
        raise FileNotFoundError(
            f"{folder} is not the folder of a parameter server: it has no file 'lock'."
        )
    return found


def repair(folder: Path) -> tuple[DamagedLogError, Path] | None:
    """Cut a server's log at its first damage; return the damage and where the rest was moved.

    Returns None if everything verifies. A damaged snapshot raises FormatError: the log after it is
    of no use without it.
    """
    lock = lock_folder(folder)
    try:
        start, chain = 0, 0
        found = newest_snapshot(folder)
        if found is not None:
            start, path = found
            chain = int(manifest.load_state(path)[1]["chain"])
        try:
            for _ in LogReader(folder, start, chain):
                pass
        except DamagedLogError as damage:
            return damage, set_aside(damage)
        return None
    finally:
        os.close(lock)
