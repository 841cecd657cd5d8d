"""Paddle's binary tensor records: one variable in a file, or many in a combined file.

A record is: uint32 version (0); uint64 number of LoD levels and per level a uint64 byte length with
that many bytes of uint64 offsets; uint32 version (0); int32 length of a TensorDesc protobuf, the
protobuf; the elements, little-endian. NumPy has no bfloat16, so BF16 records are uint16 arrays of
the same bits (as in Paddle's Python API), and uint16 arrays are written as BF16. Everything is
verified before anything is returned.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

import numpy as np

from fleetx.checkpoint.file_errors import FormatError
from fleetx.checkpoint.program_desc import VarType, message, parse
from fleetx.checkpoint.side_checksums import verify

LoD = list[list[int]]

ALIGNMENT = 64

_DTYPES: dict[VarType, np.dtype] = {
    VarType.BOOL: np.dtype("?"),
    VarType.INT16: np.dtype("<i2"),
    VarType.INT32: np.dtype("<i4"),
    VarType.INT64: np.dtype("<i8"),
    VarType.FP16: np.dtype("<f2"),
    VarType.FP32: np.dtype("<f4"),
    VarType.FP64: np.dtype("<f8"),
    VarType.UINT8: np.dtype("u1"),
    VarType.INT8: np.dtype("i1"),
    VarType.BF16: np.dtype("<u2"),
    VarType.COMPLEX64: np.dtype("<c8"),
    VarType.COMPLEX128: np.dtype("<c16"),
}
_KINDS = {dtype: kind for kind, dtype in _DTYPES.items()}


class Record(NamedTuple):
    """One stored tensor: its array and its LoD (offsets per level, empty for ordinary tensors)."""

    array: np.ndarray
    lod: LoD


def kind_of(dtype: np.dtype) -> VarType:
    """Return the element type under which Paddle stores arrays of ``dtype``."""
    try:
        return _KINDS[dtype.newbyteorder("<")]
    except KeyError:
        raise TypeError(
            f"Arrays of type {dtype} cannot be stored in Paddle's format; convert to one of "
            f"{', '.join(sorted({str(known) for known in _KINDS}))}."
        ) from None


def dtype_of(kind: int) -> np.dtype:
    """Return the NumPy type of one of Paddle's element types (uint16 for BF16)."""
    try:
        return _DTYPES[VarType(kind)]
    except (ValueError, KeyError):
        raise ValueError(f"{kind} is not an element type of a tensor.") from None


def write_tensor(
    stream: BinaryIO, array: np.ndarray, lod: Sequence[Sequence[int]] | None = None
) -> None:
    """Append one record to ``stream``."""
    array = np.asarray(array)
    kind = kind_of(array.dtype)
    array = np.asarray(array, dtype=_DTYPES[kind], order="C")
    header = [struct.pack("<IQ", 0, len(lod or ()))]
    for level in lod or ():
        offsets = np.asarray(level, dtype="<u8").tobytes()
        header += [struct.pack("<Q", len(offsets)), offsets]
    description = message("VarType.TensorDesc")(
        data_type=int(kind), dims=array.shape
    ).SerializeToString()
    header += [struct.pack("<Ii", 0, len(description)), description]
    stream.write(b"".join(header))
    # The raw buffer is written without copying a large array.
    stream.write(array.reshape(-1).view(np.uint8).data)


class _Reader:
    """Reader of a seekable stream that checks every length against the bytes that are left."""

    def __init__(self, stream: BinaryIO, source: str) -> None:
        self._stream = stream
        self.source = source
        start = stream.tell()
        self.left = stream.seek(0, os.SEEK_END) - start
        stream.seek(start)

    def fail(self, problem: str) -> FormatError:
        return FormatError(self.source, problem)

    def fill(self, buffer: memoryview, what: str) -> None:
        wanted, done = len(buffer), 0
        while done < wanted:
            count = self._stream.readinto(buffer[done:])  # type: ignore[attr-defined]
            if not count:
                raise self.fail(f"became shorter while {what} was being read.")
            done += count
        self.left -= wanted

    def take(self, size: int, what: str) -> bytes:
        if size > self.left:
            raise self.fail(
                f"ends in the middle of {what}: {size} bytes are needed, but {self.left} are left; "
                "the file is truncated or is not a Paddle tensor file."
            )
        data = bytearray(size)
        self.fill(memoryview(data), what)
        return bytes(data)

    def number(self, code: str, what: str) -> int:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]


def _read_version(reader: _Reader, what: str) -> None:
    version = reader.number("I", f"the {what} version")
    if version != 0:
        raise reader.fail(
            f"has {what} version {version} instead of 0; it is not a Paddle tensor file, "
            "or a combined file read as a single one."
        )


def _read_lod(reader: _Reader) -> LoD:
    levels = reader.number("Q", "the number of LoD levels")
    if levels * 8 > reader.left:
        raise reader.fail(
            f"claims {levels} LoD levels, more than its {reader.left} bytes can hold."
        )
    lod: LoD = []
    for level in range(levels):
        size = reader.number("Q", f"the length of LoD level {level}")
        if size % 8:
            raise reader.fail(f"LoD level {level} has {size} bytes, which is not a multiple of 8.")
        lod.append(np.frombuffer(reader.take(size, f"LoD level {level}"), "<u8").tolist())
    return lod


def _check_lod(reader: _Reader, lod: LoD, shape: tuple[int, ...]) -> None:
    for level, offsets in enumerate(lod):
        below = len(lod[level + 1]) - 1 if level + 1 < len(lod) else (shape[0] if shape else 0)
        ascending = all(a <= b for a, b in zip(offsets, offsets[1:], strict=False))
        if not offsets or offsets[0] != 0 or not ascending or offsets[-1] != below:
            raise reader.fail(
                f"LoD level {level} must increase from 0 to {below}, but is {offsets[:8]}"
                f"{'…' if len(offsets) > 8 else ''}."
            )


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array that starts at a multiple of 64 bytes, so that torch can use its memory."""
    array = np.empty(shape, dtype)
    if array.ctypes.data % ALIGNMENT == 0:
        return array
    room = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + array.nbytes].view(dtype).reshape(shape)


def _read_array(reader: _Reader) -> np.ndarray:
    _read_version(reader, "tensor")
    size = reader.number("i", "the length of the tensor description")
    if size < 0:
        raise reader.fail(f"has a tensor description of length {size}.")
    description = parse(
        "VarType.TensorDesc", reader.take(size, "the tensor description"), source=reader.source
    )
    try:
        dtype = dtype_of(description.data_type)
    except ValueError as error:
        raise reader.fail(f"stores elements of an unknown type: {error}") from error
    shape = tuple(description.dims)
    count = 1
    for dim in shape:
        if dim < 0:
            raise reader.fail(f"has a tensor with the invalid shape {list(shape)}.")
        count *= dim
    if count * dtype.itemsize > reader.left:
        raise reader.fail(
            f"a tensor of shape {list(shape)} and type {dtype} needs {count * dtype.itemsize} "
            f"bytes, but {reader.left} are left; the file is truncated or damaged."
        )
    try:
        array = _aligned(shape, dtype)
    except ValueError as error:  # exceeds NumPy's number of dimensions or index type
        raise reader.fail(f"has a tensor of the shape {list(shape)}: {error}.") from error
    reader.fill(
        array.reshape(-1).view(np.uint8).data, f"the data of a tensor of shape {list(shape)}"
    )
    return array


def read_tensor(stream: BinaryIO, *, source: str) -> Record:
    """Read the record at the current position of ``stream``, which must be seekable.

    ``source`` is the name of the file in a :class:`FormatError`. Elements are read directly into
    the returned array.
    """
    reader = _Reader(stream, source)
    _read_version(reader, "LoD")
    lod = _read_lod(reader)
    array = _read_array(reader)
    _check_lod(reader, lod, array.shape)
    return Record(array, lod)


def _read_all(stream: BinaryIO, names: Sequence[str], source: str) -> dict[str, Record]:
    records: dict[str, Record] = {}
    for name in names:
        if not _Reader(stream, source).left:
            raise FormatError(
                source,
                f"ends after {len(records)} variable(s), before {name!r}; it is truncated or was "
                "saved from another program.",
            )
        records[name] = read_tensor(stream, source=f"{source} (variable {name!r})")
    if rest := _Reader(stream, source).left:
        raise FormatError(
            source,
            f"continues for {rest} bytes after its {len(names)} expected variable(s); "
            "it was saved from another program or for other variables.",
        )
    return records


def read_tensors(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, Record]:
    """Read a file that contains exactly the variables ``names``, in this order.

    It is verified if there is a checksum beside it.
    """
    verify(path)
    with open(path, "rb") as stream:
        return _read_all(stream, names, os.fspath(path))


def parse_tensors(data: bytes, names: Sequence[str], *, source: str) -> dict[str, Record]:
    """Read the records as :func:`read_tensors` does, from bytes in memory."""
    return _read_all(io.BytesIO(data), names, source)
