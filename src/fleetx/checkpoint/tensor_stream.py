"""Tensors in the safetensors format from a stream: read, hashed and copied in one pass.

For files that cannot be mapped, or that may change while they are mapped.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, BinaryIO

import torch

from fleetx.checkpoint.file_errors import FormatError
from fleetx.checkpoint.file_list import Entry
from fleetx.checkpoint.manifest import TYPE_NAMES

_TYPES = {name: dtype for dtype, name in TYPE_NAMES.items()}
_CHUNK = 1 << 20
# The limit of the format.
_LONGEST_HEADER = 100_000_000


class _HashingReader:
    """A stream for reading that computes the size and checksum of its data."""

    def __init__(self, stream: BinaryIO, source: str) -> None:
        self._stream = stream
        self._source = source
        self._hash = hashlib.blake2b(digest_size=16)
        self._size = 0

    def fill(self, target: memoryview) -> None:
        at = 0
        while at < len(target):
            count = self._stream.readinto(target[at : at + _CHUNK])  # type: ignore[attr-defined]
            if not count:
                raise FormatError(self._source, "was cut short.")
            self._hash.update(target[at : at + count])
            at += count
        self._size += at

    def take(self, size: int) -> bytearray:
        data = bytearray(size)
        self.fill(memoryview(data))
        return data

    @property
    def entry(self) -> Entry:
        return {"size": self._size, "blake2b": self._hash.hexdigest()}


def read_tensors(stream: BinaryIO, size: int, source: str) -> tuple[dict[str, torch.Tensor], Entry]:
    """Return the tensors of a file of `size` bytes, and the checksum of what was read."""
    reader = _HashingReader(stream, source)
    if size < 8:
        raise FormatError(source, "is too short for tensors.")
    length = int.from_bytes(reader.take(8), "little")
    if length > min(size - 8, _LONGEST_HEADER):
        raise FormatError(source, "has a header that is longer than the file, or damaged.")
    try:
        header = json.loads(reader.take(length))
        entries = _in_order(header, size - 8 - length)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(source, f"has no valid safetensors header ({error}).") from error
    tensors = {}
    for name, dtype, shape in entries:
        try:
            tensors[name] = torch.empty(shape, dtype=dtype)
        except (RuntimeError, TypeError) as error:  # a huge shape with a 0 in it
            raise FormatError(source, f"has an invalid tensor ({error}).") from error
        if tensors[name].numel():
            reader.fill(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return tensors, reader.entry


def _in_order(header: dict[str, Any], size: int) -> list[tuple[str, torch.dtype, list[int]]]:
    """Return names, types and shapes in the order of the data, which must fill `size` bytes."""
    rows = sorted(
        (entry["data_offsets"], name, _TYPES[entry["dtype"]], entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    )
    at = 0
    for (start, end), name, dtype, shape in rows:
        if not all(type(n) is int and n >= 0 for n in (start, end, *shape)):
            raise ValueError(f"{name!r} has an invalid size")
        if start != at or end - start != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name!r} has the wrong offset")
        at = end
    if at != size:
        raise ValueError(f"{size} bytes of data are listed as {at}")
    return [(name, dtype, shape) for _, name, dtype, shape in rows]
