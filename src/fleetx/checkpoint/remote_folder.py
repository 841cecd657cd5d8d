"""Folders of object stores and other remote file systems, through fsspec."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from fleetx.checkpoint.atomic import inside
from fleetx.checkpoint.folder import Folder

_BLOCK = 8 << 20


def open_file_system(url: str) -> tuple[Any, str]:
    """Return the file system of an address and the path in it.

    Listings are not cached: other workers write to the same folders.
    """
    try:
        import fsspec.core

        file_system, path = fsspec.core.url_to_fs(
            url, use_listings_cache=False, skip_instance_cache=True
        )
    except ImportError as error:
        raise ImportError(
            f"{url!r} needs a package that is not installed ({error}): "
            "pip install 'fleetx[remote]', or save to a folder of this machine."
        ) from error
    except ValueError as error:
        raise ValueError(
            f"{url!r} cannot be opened ({error}): pass a folder, or an fsspec address, "
            "such as s3://bucket/folder."
        ) from error
    return file_system, path.rstrip("/")


class RemoteFolder(Folder):
    """A folder of a remote file system."""

    KIND = "the remote folder"

    def __init__(self, file_system: Any, path: str, url: str) -> None:
        self._fs = file_system
        self._path = path
        self._url = url
        self.name = path.rpartition("/")[2]

    def __str__(self) -> str:
        return self._url

    def _full(self, name: str) -> str:
        inside(self._path, name)  # raises for names that leave the folder
        return f"{self._path}/{name}"

    def can_be_written(self) -> bool:
        """Return True: only a write shows it."""
        return True

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Open a new file for writing; it is complete after the block."""
        with self._fs.open(self._full(name), "wb", block_size=_BLOCK) as stream:
            yield stream

    def write(self, name: str, data: bytes) -> None:
        """Write a small file."""
        self._fs.pipe_file(self._full(name), data)

    def create_exclusively(self, name: str, data: bytes) -> bool:
        """Write a small file unless it exists, atomically if supported; return whether it did."""
        try:
            self._fs.pipe_file(self._full(name), data, mode="create")
        except FileExistsError:
            return False
        return True

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        stream: BinaryIO = self._fs.open(self._full(name), "rb", block_size=_BLOCK)
        return stream

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if there is none."""
        try:
            found = self._fs.info(self._full(name))
        except FileNotFoundError:
            return None
        return int(found["size"]) if found["type"] == "file" else None

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._fs.rm_file(self._full(name))

    def remove_all(self) -> None:
        """Remove the folder with all files."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(self._path, recursive=True)
