"""Writer of `.pdparams` / `.pdopt` files: pickles of {name: array} for every Paddle since 1.6.

The opcodes are written directly. Python's own pickler would use the function names of the installed
NumPy (`numpy._core…`), which the old NumPy of an old Paddle lacks, and would copy each array.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from fleetx.checkpoint.pickle_reader import BIG_PARAMETERS

# Protocols 2 and 3 use 32-bit lengths; Paddle splits larger arrays into parts of this many bytes.
_PART_BYTES = 2**30 - 1
_CHUNK = 1 << 20


def _global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


_RECONSTRUCT = _global("numpy.core.multiarray", "_reconstruct")
_NDARRAY = _global("numpy", "ndarray")
_DTYPE = _global("numpy", "dtype")
_ENCODE = _global("_codecs", "encode")


class _Writer:
    def __init__(self, stream: BinaryIO, protocol: int) -> None:
        self._put = stream.write
        self._protocol = protocol

    def text(self, value: str) -> None:
        data = value.encode("utf-8", "surrogatepass")
        self._put(pickle.BINUNICODE + struct.pack("<I", len(data)) + data)

    def raw(self, data: memoryview) -> None:
        """Write bytes: unchanged since protocol 3, as encoded latin-1 text before that."""
        if self._protocol >= 3:
            if len(data) < 2**32:
                self._put(pickle.BINBYTES + struct.pack("<I", len(data)))
            else:
                self._put(pickle.BINBYTES8 + struct.pack("<Q", len(data)))
            self._put(data)
            return
        flat = np.frombuffer(data, np.uint8)
        starts = range(0, len(flat), _CHUNK)
        # Every byte from 128 on takes two bytes in UTF-8; the length precedes the data.
        high = sum(int(np.count_nonzero(flat[i : i + _CHUNK] & 0x80)) for i in starts)
        self._put(_ENCODE + pickle.BINUNICODE + struct.pack("<I", len(flat) + high))
        for i in starts:
            self._put(data[i : i + _CHUNK].tobytes().decode("latin-1").encode("utf-8"))
        self.text("latin1")
        self._put(pickle.TUPLE2 + pickle.REDUCE)

    def array(self, array: np.ndarray) -> None:
        if array.dtype.kind not in "biufc":
            raise TypeError(
                f"Arrays of type {array.dtype} cannot be saved; convert to numbers first."
            )
        dtype = array.dtype.newbyteorder("<")
        array = np.asarray(array, dtype=dtype, order="C")
        self._put(_RECONSTRUCT + _NDARRAY + pickle.BININT1 + b"\0" + pickle.TUPLE1)
        self.raw(memoryview(b"b"))
        self._put(pickle.TUPLE3 + pickle.REDUCE + pickle.MARK + pickle.BININT1 + b"\1")
        self.value(array.shape)
        self._put(_DTYPE)
        self.value((dtype.str[1:], False, True))
        self._put(pickle.REDUCE)
        self.value((3, dtype.str[0], None, None, None, -1, -1, 0))
        self._put(pickle.BUILD + pickle.NEWFALSE)
        self.raw(array.reshape(-1).view(np.uint8).data)
        self._put(pickle.TUPLE + pickle.BUILD)

    def value(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self.array(value)
        elif isinstance(value, str):
            self.text(value)
        elif isinstance(value, Mapping):
            self._put(pickle.EMPTY_DICT + pickle.MARK)
            for key, item in value.items():
                self.value(key)
                self.value(item)
            self._put(pickle.SETITEMS)
        elif isinstance(value, list | tuple):
            self._put(pickle.MARK)
            for item in value:
                self.value(item)
            self._put(pickle.TUPLE if isinstance(value, tuple) else pickle.LIST)
        elif value is None or isinstance(value, bool | int | float | np.number | np.bool_):
            plain = value.item() if isinstance(value, np.generic) else value
            # A number's own pickle without header (2 bytes) and end (1 byte) is just the opcode.
            self._put(pickle.dumps(plain, 2)[2:-1])
        else:
            raise TypeError(
                f"A {type(value).__name__} cannot be saved in a parameter file; only arrays, "
                "numbers, text and containers of these can."
            )


def _split_big(values: Mapping[str, Any], part_bytes: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    information: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(value, np.ndarray) or value.nbytes <= part_bytes:
            result[name] = value
            continue
        step = part_bytes // value.itemsize
        flat = value.reshape(-1)
        parts = {
            f"{name}@@.{n}": flat[i : i + step] for n, i in enumerate(range(0, flat.size, step))
        }
        information[name] = {"OriginShape": value.shape, "slices": list(parts)}
        result.update(parts)
    if information:
        result[BIG_PARAMETERS] = information
    return result


def dump_object(
    stream: BinaryIO, values: Any, *, protocol: int = 2, part_bytes: int = _PART_BYTES
) -> None:
    """Write arrays, numbers, text and containers of these to ``stream`` as one pickle.

    In protocols 2 and 3, arrays of more than ``part_bytes`` in a dictionary are split into parts.
    """
    if protocol not in (2, 3, 4):
        raise ValueError(f"protocol must be 2, 3 or 4, not {protocol!r}.")
    if protocol < 4 and isinstance(values, Mapping):
        values = _split_big(values, part_bytes)
    stream.write(pickle.PROTO + bytes([protocol]))
    _Writer(stream, protocol).value(values)
    stream.write(pickle.STOP)
