"""Arrays in .npy, .npz and safetensors files, read row by row.

A file is scanned once for the offsets of its arrays; rows are then read by position, so memory
contains only the requested rows, and a description can be sent to another process. Compressed
members of an .npz are first extracted to a temporary folder. Pickled objects are never loaded.
"""

from __future__ import annotations

import json
import math
import shutil
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fleetx.checkpoint import FormatError
from fleetx.serving.bodies import DTYPES

SUFFIXES = (".npy", ".npz", ".safetensors")

_LONGEST_HEADER = 100_000_000  # the limit of the safetensors library


@dataclass(frozen=True)
class StoredArray:
    """An array in a file: its offset, shape and type."""

    path: Path
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]
    column_major: bool = False

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the rows from `start` up to `stop`."""
        if self.column_major:
            whole = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, order="F")
            return np.ascontiguousarray(whole[start:stop])
        size = math.prod(self.shape[1:])
        with open(self.path, "rb") as stream:
            stream.seek(self.offset + start * size * self.dtype.itemsize)
            rows = np.fromfile(stream, self.dtype, (stop - start) * size)
        if rows.size < (stop - start) * size:
            raise FormatError(str(self.path), f"it ends before row {stop} of {self.shape[0]}.")
        return rows.reshape(stop - start, *self.shape[1:])


def stored_arrays(path: Path, unpacked: Path) -> dict[str, StoredArray]:
    """Return the arrays of a file by name (an empty name for .npy).

    `unpacked` is a folder for extracted members; it is created if needed.
    """
    if path.suffix == ".npy":
        with open(path, "rb") as stream:
            return {"": _npy(stream, path)}
    if path.suffix == ".npz":
        return _npz(path, unpacked)
    if path.suffix == ".safetensors":
        return _safetensors(path)
    raise FormatError(
        str(path), f"samples come from {', '.join(SUFFIXES)} files, or from a folder of pictures."
    )


def _npy(stream: BinaryIO, path: Path, name: str = "", start: int = 0) -> StoredArray:
    """Read the header of an array; `start` is the stream's offset in the file `path`."""
    which = f"member {name!r} " if name else "it "
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, column_major, dtype = read(stream)
    except (ValueError, KeyError, EOFError) as error:
        raise FormatError(str(path), f"{which}is not an array saved by NumPy: {error}.") from error
    if dtype.hasobject:
        raise FormatError(
            str(path), f"{which}holds Python objects, which are not loaded; save numbers."
        )
    return StoredArray(path, start + stream.tell(), dtype, shape, column_major)


def _npz(path: Path, unpacked: Path) -> dict[str, StoredArray]:
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for number, member in enumerate(archive.infolist()):
                name = member.filename.removesuffix(".npy")
                if member.compress_type == zipfile.ZIP_STORED:
                    with open(path, "rb") as stream:
                        start = _data_of(stream, member)
                        stream.seek(start)
                        # Positions of the stream are already positions in the archive.
                        found[name] = _npy(stream, path, name)
                else:
                    target = unpacked / f"{number}.npy"
                    unpacked.mkdir(parents=True, exist_ok=True)
                    with archive.open(member) as packed, open(target, "w+b") as plain:
                        shutil.copyfileobj(packed, plain)
                        plain.seek(0)
                        found[name] = _npy(plain, target, name)
    except zipfile.BadZipFile as error:
        raise FormatError(str(path), f"it is not an .npz file: {error}.") from error
    return found


def _data_of(stream: BinaryIO, member: zipfile.ZipInfo) -> int:
    """Return the offset of an uncompressed member's data, after its own header."""
    stream.seek(member.header_offset)
    header = stream.read(30)
    if len(header) < 30:
        raise zipfile.BadZipFile(f"member {member.filename!r} is cut off")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    return member.header_offset + 30 + name_length + extra_length


def _safetensors(path: Path) -> dict[str, StoredArray]:
    with open(path, "rb") as stream:
        header, start = _safetensors_header(stream, path)
    size = path.stat().st_size
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape = DTYPES[entry["dtype"]], tuple(map(int, entry["shape"]))
            begin, end = entry["data_offsets"]
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(
                str(path),
                f"tensor {name!r} is described as {entry}; it needs shape, data_offsets and one "
                f"of the types {', '.join(DTYPES)}.",
            ) from error
        if end - begin != math.prod(shape) * dtype.itemsize or start + end > size or begin < 0:
            raise FormatError(str(path), f"tensor {name!r} is outside of the file.")
        found[name] = StoredArray(path, start + begin, dtype, shape)
    return found


def _safetensors_header(stream: BinaryIO, path: Path) -> tuple[dict[str, Any], int]:
    prefix = stream.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > _LONGEST_HEADER:
        raise FormatError(str(path), "it is not a safetensors file: its header has no length.")
    try:
        header = json.loads(stream.read(length))
    except ValueError as error:
        raise FormatError(
            str(path), f"it is not a safetensors file: its header is not JSON: {error}."
        ) from error
    if not isinstance(header, dict):
        raise FormatError(str(path), "it is not a safetensors file: its header is not an object.")
    return header, 8 + length
