"""Reader of `.pdparams` / `.pdopt` files: pickles of arrays and plain containers only.

A pickle is a program, so it never gets access to a real constructor. The few globals that Paddle's
files reference (NumPy's array reconstruction, dtypes, OrderedDict, …) are replaced by stand-ins
created per file, which only record validated values; the real arrays are built from those records
afterwards.
"""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from fleetx.checkpoint.file_errors import FormatError
from fleetx.checkpoint.side_checksums import verify

STRUCTURED_NAMES = "StructuredToParameterName@@"
BIG_PARAMETERS = "UnpackBigParamInfor@@"

_Value = Any


class _Refused(Exception):
    """The error raised inside the unpickler; becomes a FormatError with the name of the file."""


class _DtypeRecord:
    """The placeholder of a numpy.dtype during unpickling."""

    def __init__(self, code: object) -> None:
        if not isinstance(code, str) or code[:1] not in tuple("biufc?"):
            raise _Refused(
                f"has an array of type {code!r}; only numbers and booleans are accepted."
            )
        self.dtype = np.dtype(code)

    def __setstate__(self, state: object) -> None:
        # (version, byte order, subdtype, names, fields, itemsize, alignment, flags); a plain number
        # has only a byte order.
        if (
            not isinstance(state, tuple)
            or len(state) < 5
            or any(part is not None for part in state[2:5])
        ):
            raise _Refused(
                "has an array of a structured type; only numbers and booleans are accepted."
            )
        if state[1] not in ("<", ">", "|", "="):
            raise _Refused(f"has an array with the byte order {state[1]!r}.")
        self.dtype = self.dtype.newbyteorder(state[1])


class _ArrayRecord:
    """The placeholder of a numpy.ndarray during unpickling."""

    array: np.ndarray | None = None

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _Refused("has an array with an invalid state.")
        _, shape, dtype, fortran, data = state
        self.array = _build(shape, dtype, data, "F" if fortran else "C")


def _build(shape: object, dtype: object, data: object, order: object) -> np.ndarray:
    if isinstance(data, str):  # written by Python 2: raw bytes as latin-1 text
        data = data.encode("latin-1")
    if not isinstance(data, bytes | bytearray | memoryview) or not isinstance(dtype, _DtypeRecord):
        raise _Refused("has an array whose data is not raw numbers.")
    dimensions = shape if isinstance(shape, tuple) else (shape,)
    if not all(isinstance(dim, int) and dim >= 0 for dim in dimensions) or order not in ("C", "F"):
        raise _Refused(f"has an array with the invalid shape {shape!r}.")
    count = 1
    for dim in dimensions:
        count *= dim
    if count * dtype.dtype.itemsize != len(data):
        raise _Refused(
            f"has an array of shape {list(dimensions)} and type {dtype.dtype} with {len(data)} "
            "bytes."
        )
    flat = np.frombuffer(data, dtype.dtype) if count else np.empty(0, dtype.dtype)
    # A copy, because callers may write to loaded arrays, and bytes are read-only.
    shaped = flat.reshape(dimensions, order="F" if order == "F" else "C")
    return shaped.astype(dtype.dtype.newbyteorder("="), order="K")


class _StandIn:
    """A callable that a pickle may use; created per file, so that a pickle affects only itself."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def __call__(self, *args: object) -> object:
        try:
            return self._function(*args)
        except TypeError as error:
            raise _Refused(f"calls a constructor with unexpected arguments ({error}).") from error


def _reconstruct(kind: object, shape: object, code: object) -> _ArrayRecord:
    if kind != "ndarray":
        raise _Refused("has an array of a class other than numpy.ndarray.")
    return _ArrayRecord()


def _scalar(dtype: object, data: object = b"") -> _ArrayRecord:
    record = _ArrayRecord()
    record.array = _build((), dtype, data, "C")
    return record


def _frombuffer(data: object, dtype: object, shape: object, order: object) -> _ArrayRecord:
    record = _ArrayRecord()
    record.array = _build(shape, dtype, data, order)
    return record


def _encode(text: object, encoding: object) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise _Refused(
            f"encodes text as {encoding!r}; only raw bytes written as latin1 are accepted."
        )
    return text.encode("latin-1")


def _reduced_tensor(expression: object, names: object) -> object:
    # paddle.save writes a static-graph tensor as eval('data', {'data': array}). It is never
    # evaluated.
    if expression != "data" or not isinstance(names, dict) or set(names) != {"data"}:
        raise _Refused(f"wants to evaluate {expression!r}.")
    return names["data"]


def _make_tuple(items: object = ()) -> tuple[object, ...]:
    if not isinstance(items, tuple | list):
        raise _Refused("creates a tuple from something other than a list.")
    return tuple(items)


def _accepted() -> dict[tuple[str, str], object]:
    table: dict[tuple[str, str], object] = {
        ("numpy", "ndarray"): "ndarray",
        ("numpy", "dtype"): _StandIn(lambda code, align=False, copy=True: _DtypeRecord(code)),
        ("_codecs", "encode"): _StandIn(_encode),
        ("collections", "OrderedDict"): OrderedDict,
    }
    for package in ("numpy.core", "numpy._core"):
        table[f"{package}.multiarray", "_reconstruct"] = _StandIn(_reconstruct)
        table[f"{package}.multiarray", "scalar"] = _StandIn(_scalar)
        table[f"{package}.numeric", "_frombuffer"] = _StandIn(_frombuffer)
    for builtins in ("builtins", "__builtin__"):
        table[builtins, "tuple"] = _StandIn(_make_tuple)
        table[builtins, "eval"] = _StandIn(_reduced_tensor)
        table[builtins, "bytearray"] = _StandIn(_make_bytearray)
        table[builtins, "bytes"] = _StandIn(_make_bytes)
    return table


def _make_bytearray(data: object = b"") -> bytearray:
    # Without this check, bytearray(10**12) would allocate a terabyte.
    if not isinstance(data, bytes):
        raise _Refused("creates a bytearray from something other than bytes.")
    return bytearray(data)


def _make_bytes() -> bytes:
    # Protocol 2 has no bytes; Python writes empty bytes as a call without arguments.
    return b""


class _ArrayUnpickler(pickle.Unpickler):
    def __init__(self, stream: BinaryIO) -> None:
        # latin1 reads files of Python 2, as Paddle itself does.
        super().__init__(stream, encoding="latin1")
        self._accepted = _accepted()

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._accepted[module, name]
        except KeyError:
            raise _Refused(
                f"refers to the global {module}.{name}; a parameter file may hold arrays and plain "
                "containers only, so it is not loaded."
            ) from None


class _Resolver:
    """Converter of the records of a finished pickle to arrays, which rejects everything unknown."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[object, _Value]] = {}

    def value(self, item: Any) -> _Value:
        # Shared objects are resolved once: with sharing, a small pickle can describe a tree of
        # exponential size.
        known = self._done.get(id(item))
        if known is not None:
            if known[1] is self:
                raise _Refused("holds a container that contains itself.")
            return known[1]
        self._done[id(item)] = (item, self)
        result = self._convert(item)
        self._done[id(item)] = (item, result)
        return result

    def _convert(self, item: Any) -> _Value:
        if item is None or type(item) in (bool, int, float, complex, str, bytes):
            return item
        if type(item) is _ArrayRecord and item.array is not None:
            return item.array
        if type(item) in (dict, OrderedDict):
            return {self.value(key): self.value(element) for key, element in dict(item).items()}
        if type(item) is list:
            return [self.value(element) for element in item]
        if type(item) is tuple:
            return tuple(self.value(element) for element in item)
        raise _Refused(f"holds an object of type {type(item).__name__}.")


def _join_big(values: dict[str, _Value]) -> None:
    information = values.pop(BIG_PARAMETERS, None)
    for name, parts in (information or {}).items():
        try:
            slices = [values[part] for part in parts["slices"]]
            values[name] = np.concatenate(slices).reshape(parts["OriginShape"])
        except (KeyError, TypeError, ValueError) as error:
            raise _Refused(f"splits {name!r} into parts that do not match ({error}).") from error
        for part in parts["slices"]:
            values.pop(part, None)


def load_object(stream: BinaryIO, *, source: str) -> _Value:
    """Read one pickle of arrays, numbers, text and containers from ``stream``.

    Any other content, or anything after it, raises a :class:`FormatError` that names ``source``.
    """
    try:
        result = _Resolver().value(_ArrayUnpickler(stream).load())
        if isinstance(result, dict) and BIG_PARAMETERS in result:
            _join_big(result)
    except _Refused as error:
        raise FormatError(source, str(error)) from error
    except Exception as error:
        # Damaged data can raise almost anything in the unpickler: EOFError, UnicodeDecodeError,
        # IndexError, …
        raise FormatError(source, f"is truncated, damaged or not a pickle ({error}).") from error
    if stream.read(1):
        raise FormatError(source, "continues after the end of its pickle.")
    return result


def load_arrays(
    path: str | os.PathLike[str], *, keep_name_table: bool = False
) -> dict[str, _Value]:
    """Read a `.pdparams` or `.pdopt` file: a dictionary from names to arrays.

    Tensors that Paddle 2.x stored as (name, array) are returned as arrays. A `.pdopt` may also
    contain plain numbers and dictionaries (the state of a learning-rate schedule). The table from
    structured names to parameter names is dropped unless ``keep_name_table`` is set. The file is
    verified if there is a checksum beside it.
    """
    source = os.fspath(path)
    verify(path)
    with open(path, "rb") as stream:
        result = load_object(stream, source=source)
    if not isinstance(result, dict):
        raise FormatError(source, f"holds a {type(result).__name__}, not a dictionary of arrays.")
    if not keep_name_table:
        result.pop(STRUCTURED_NAMES, None)
    for name, value in result.items():
        if not isinstance(name, str):
            raise FormatError(source, f"has the key {name!r}, which is not a name.")
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], np.ndarray):
            result[name] = value[1]
    return result
