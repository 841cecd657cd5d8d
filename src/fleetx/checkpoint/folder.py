"""A folder of files that are written once and read by name: the storage of checkpoints."""

from __future__ import annotations

import abc
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar

from fleetx.checkpoint.atomic import inside, write_bytes


class Folder(abc.ABC):
    """A folder; names of files in it may contain folders, but must stay inside."""

    KIND: ClassVar[str]
    """The storage that holds it, for messages."""
    name: str
    """The last part of its path."""

    @abc.abstractmethod
    def __str__(self) -> str:
        """Return its path, for messages."""

    @abc.abstractmethod
    def can_be_written(self) -> bool:
        """Return whether this process can probably write files to it."""

    @abc.abstractmethod
    def create(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """Open a new file for writing; it is durable after the block."""

    @abc.abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write a small file."""

    @abc.abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""

    @abc.abstractmethod
    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if there is none."""

    @abc.abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file."""

    def read(self, name: str) -> bytes:
        """Return the content of a small file."""
        with self.open(name) as stream:
            return stream.read()


class LocalFolder(Folder):
    """A folder of this machine's file systems."""

    KIND = "the disk"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    def __str__(self) -> str:
        return str(self.path)

    def can_be_written(self) -> bool:
        """Return whether the folder exists."""
        return self.path.is_dir()

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Open a new file for writing; it is flushed to disk after the block."""
        path = inside(self.path, name)
        path.parent.mkdir(exist_ok=True)
        with open(path, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())

    def write(self, name: str, data: bytes) -> None:
        """Write a small file atomically."""
        write_bytes(inside(self.path, name), data)

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        return open(inside(self.path, name), "rb", buffering=0)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if there is none."""
        path = inside(self.path, name)
        return path.stat().st_size if path.is_file() else None

    def remove(self, name: str) -> None:
        """Remove a file."""
        inside(self.path, name).unlink()
