"""Lists of files with their sizes and checksums: the manifest of a complete folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from fleetx.checkpoint.file_errors import FormatError, MissingFileError
from fleetx.checkpoint.folder import Folder

Entry = dict[str, Any]


class HashingStream:
    """A stream for writing that computes the size and checksum of its data.

    `copy` is called with the same bytes.
    """

    def __init__(
        self, stream: BinaryIO, copy: Callable[[bytes | memoryview], None] | None = None
    ) -> None:
        self._stream = stream
        self._copy = copy
        self._hash = hashlib.blake2b(digest_size=16)
        self._size = 0

    def write(self, data: bytes | memoryview) -> int:
        """Write and hash some bytes."""
        self._hash.update(data)
        self._size += len(data)
        if self._copy is not None:
            self._copy(data)
        return self._stream.write(data)

    @property
    def entry(self) -> Entry:
        """The size and checksum so far."""
        return {"size": self._size, "blake2b": self._hash.hexdigest()}

    def as_binary(self) -> BinaryIO:
        """Return this stream as the type that writers expect; they only write to it."""
        return cast(BinaryIO, self)


def describe(path: Path) -> Entry:
    """Return the size and checksum of a file."""
    with open(path, "rb") as stream:
        found = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16))
        return {"size": stream.tell(), "blake2b": found.hexdigest()}


def check_sizes(folder: Folder, entries: Mapping[str, Entry]) -> None:
    """Raise if a listed file is missing or has another size."""
    for name, entry in entries.items():
        size = folder.size(name)
        if size is None:
            raise MissingFileError(f"{folder}/{name} is missing, but listed in the manifest.")
        if size != entry["size"]:
            raise FormatError(
                f"{folder}/{name}",
                f"has {size} bytes instead of {entry['size']}: it was truncated or replaced.",
            )


def check_entry(source: str, found: Entry, listed: Entry) -> None:
    """Raise if a file does not have its listed checksum."""
    if found != listed:
        raise FormatError(
            source, "does not match its checksum in the manifest: it was damaged or replaced."
        )
