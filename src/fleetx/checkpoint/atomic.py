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
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

_PathLike = str | os.PathLike[str]
# Returns the path and content of a file about a finished file and its target.
Describe = Callable[[Path, Path], tuple[Path, bytes]]


def _create_temporary(target: Path) -> tuple[BinaryIO, Path]:
    # tempfile would create the file as 0600; a saved model follows the user's umask like any other
    # file.
    temporary = target.with_name(f".{target.name[:120]}.{secrets.token_hex(6)}.tmp")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    return os.fdopen(descriptor, "w+b"), temporary


@contextlib.contextmanager
def _finished(stream: BinaryIO, target: Path, durable: bool = True) -> Iterator[None]:
    """Flush what the block writes, to disk if `durable`; errors name the target."""
    try:
        with stream:
            yield
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
    except OSError as error:
        # The OS error names the file only if it cannot be opened, not if the disk is full.
        if error.errno is not None and error.filename is None:
            error.filename = str(target)
        raise


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _resolve(path: _PathLike) -> Path:
    # Renaming onto a symbolic link would replace the link instead of the file that it points to.
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; pass the name of a file in it.")
    return target


@contextlib.contextmanager
def atomic_write(
    path: _PathLike, describe: Describe | None = None, *, durable: bool = True
) -> Iterator[BinaryIO]:
    """Open ``path`` for writing; the file appears under its name only if the block succeeds.

    Missing folders are created. If the block raises, ``path`` keeps its old content. With
    ``describe``, a function of the finished file and its target, another file is written first.
    A file that need not survive a crash of the machine is written faster without ``durable``.
    """
    target = _resolve(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    stream, temporary = _create_temporary(target)
    try:
        with _finished(stream, target, durable):
            yield stream
        if describe is not None:
            write_bytes(*describe(temporary, target))
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(target.parent)


def write_bytes(
    path: _PathLike, data: bytes | bytearray | memoryview, *, durable: bool = True
) -> None:
    """Write ``data`` to ``path`` atomically; see :func:`atomic_write` for ``durable``."""
    with atomic_write(path, durable=durable) as stream:
        stream.write(data)


class AtomicFiles:
    """A set of files under one folder, see :func:`atomic_files`."""

    def __init__(
        self,
        dirname: _PathLike,
        describe: Describe | None = None,
    ) -> None:
        self.dirname = Path(dirname)
        self._describe = describe
        self._prepared: list[tuple[Path, Path]] = []

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open a file of the set; ``name`` may contain folders but must stay inside ``dirname``."""
        target = _resolve(inside(self.dirname, name))
        target.parent.mkdir(parents=True, exist_ok=True)
        stream, temporary = _create_temporary(target)
        self._prepared.append((temporary, target))
        with _finished(stream, target):
            yield stream

    def write(self, name: str, data: bytes | bytearray | memoryview) -> None:
        """Add a file with the given content to the set."""
        with self.open(name) as stream:
            stream.write(data)

    def _publish(self) -> None:
        if self._describe is not None:
            for temporary, target in self._prepared:
                write_bytes(*self._describe(temporary, target))
        while self._prepared:
            temporary, target = self._prepared[0]
            os.replace(temporary, target)
            self._prepared.pop(0)
            if not any(other.parent == target.parent for _, other in self._prepared):
                sync_folder(target.parent)

    def _discard(self) -> None:
        for temporary, _ in self._prepared:
            temporary.unlink(missing_ok=True)
        self._prepared.clear()


@contextlib.contextmanager
def atomic_files(dirname: _PathLike, describe: Describe | None = None) -> Iterator[AtomicFiles]:
    """Write several files into ``dirname``: all are complete on disk before any is renamed.

    If the block raises, none of them appears and existing files keep their content. ``describe`` is
    that of :func:`atomic_write`.
    """
    files = AtomicFiles(dirname, describe)
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
