"""Atomic files, which are either written completely or not at all.

Data is written to a temporary file in the target's folder and flushed to disk; only then is the
temporary file renamed to the target, and the folder's entry flushed too. A crash, a full disk or an
exception at any point leaves the previous file untouched and no temporary file behind (a crash of
the machine itself may leave a `.tmp` file, but never a partial target).
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

_PathLike = str | os.PathLike[str]


def _create_temporary(target: Path) -> tuple[BinaryIO, Path]:
    # tempfile would create the file as 0600; a saved model follows the user's umask like any other
    # file.
    temporary = target.with_name(f".{target.name[:120]}.{secrets.token_hex(6)}.tmp")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    return os.fdopen(descriptor, "w+b"), temporary


def _finish(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _resolve(path: _PathLike) -> Path:
    # Renaming onto a symbolic link would replace the link; the user means the file that it points
    # to.
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it.")
    return target


@contextlib.contextmanager
def atomic_write(path: _PathLike) -> Iterator[BinaryIO]:
    """Open ``path`` for writing; the file appears under its name only if the block succeeds.

    Missing folders are created. If the block raises, ``path`` keeps its old content.
    """
    target = _resolve(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    stream, temporary = _create_temporary(target)
    try:
        with stream:
            yield stream
            _finish(stream)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def write_bytes(path: _PathLike, data: bytes | bytearray | memoryview) -> None:
    """Write ``data`` to ``path`` atomically."""
    with atomic_write(path) as stream:
        stream.write(data)


class AtomicFiles:
    """A set of files under one folder, see :func:`atomic_files`."""

    def __init__(self, dirname: _PathLike) -> None:
        self.dirname = Path(dirname)
        self._prepared: list[tuple[Path, Path]] = []

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open a file of the set; ``name`` may contain folders but must stay inside ``dirname``."""
        target = _resolve(inside(self.dirname, name))
        target.parent.mkdir(parents=True, exist_ok=True)
        stream, temporary = _create_temporary(target)
        self._prepared.append((temporary, target))
        with stream:
            yield stream
            _finish(stream)

    def write(self, name: str, data: bytes | bytearray | memoryview) -> None:
        """Add a file with the given content to the set."""
        with self.open(name) as stream:
            stream.write(data)

    def _publish(self) -> None:
        while self._prepared:
            temporary, target = self._prepared[0]
            os.replace(temporary, target)
            self._prepared.pop(0)
            if not any(other.parent == target.parent for _, other in self._prepared):
                _sync_folder(target.parent)

    def _discard(self) -> None:
        for temporary, _ in self._prepared:
            temporary.unlink(missing_ok=True)
        self._prepared.clear()


@contextlib.contextmanager
def atomic_files(dirname: _PathLike) -> Iterator[AtomicFiles]:
    """Write several files into ``dirname``: all are complete on disk before any is renamed.

    If the block raises, none of them appears and existing files keep their content.
    """
    files = AtomicFiles(dirname)
    files.dirname.mkdir(parents=True, exist_ok=True)
    try:
        yield files
        files._publish()
    finally:
        files._discard()


def inside(dirname: _PathLike, name: str) -> Path:
    """Return ``dirname/name``, rejecting names that would leave ``dirname``.

    Variable names become file names, and may come from a program that someone else saved.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.endswith("/") or PurePosixPath(name).is_absolute() or ".." in parts:
        raise ValueError(f"{name!r} cannot be the name of a file inside {os.fspath(dirname)!r}.")
    return Path(dirname, *parts)
