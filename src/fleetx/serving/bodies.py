"""Bodies of requests and responses: JSON, and raw tensors in the safetensors format.

JSON is `{"inputs": {name: nested lists}}` and `{"outputs": {...}, "model": {...}}`. A raw body is
the number of bytes of the header (8 bytes, little-endian), the header `{name: {"dtype": "F32",
"shape": [..], "data_offsets": [begin, end]}}` as JSON, then the data: what `safetensors.numpy.save`
writes and `safetensors.numpy.load` reads. It is read without copying the data, which would be most
of the work of a request with images.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fleetx.serving.request_error import RequestError
from fleetx.serving.tensor_spec import Arrays, TensorSpec, check_names

JSON = "application/json"
RAW = "application/vnd.safetensors"
RAW_TYPES = (RAW, "application/octet-stream")

DTYPES = {
    "BOOL": np.dtype("bool"),
    "U8": np.dtype("uint8"),
    "I8": np.dtype("int8"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
"""The element types of safetensors that NumPy supports, by their codes."""
CODES = {dtype: code for code, dtype in DTYPES.items()}
_LENGTH = struct.Struct("<Q")
_METADATA = "__metadata__"
MAX_DIMENSIONS = 32
"""The maximum number of dimensions of an input."""


class Layout(NamedTuple):
    """The header of raw tensors, and where each of them is."""

    head: bytes
    """The bytes before the data: the length of the header, and the header."""
    places: dict[str, tuple[str, tuple[int, ...], int]]
    """The type code, the shape and the offset (in the whole body) of every tensor, in order."""


def layout(
    tensors: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]],
    metadata: Mapping[str, str] | None = None,
) -> Layout:
    """Return the layout of tensors with these types and shapes."""
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    places, begin = {}, 0
    # Wide types first, so that every tensor is aligned to its element size.
    for name, (dtype, shape) in sorted(tensors.items(), key=lambda item: -item[1][0].itemsize):
        code = CODES.get(dtype.newbyteorder("<"))
        if code is None:
            raise TypeError(f"{name!r} holds {dtype}, for which raw bodies have no code.")
        end = begin + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [begin, end]}
        places[name] = (code, shape, begin)
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = _LENGTH.pack(len(text)) + text
    return Layout(head, {name: (c, s, len(head) + at) for name, (c, s, at) in places.items()})


def encode_raw(arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return arrays, and metadata, as the bytes of a raw body."""
    rows = {name: np.asarray(value) for name, value in arrays.items()}
    head, places = layout({name: (row.dtype, row.shape) for name, row in rows.items()}, metadata)
    data = [rows[n].astype(DTYPES[code], copy=False).tobytes() for n, (code, *_) in places.items()]
    return b"".join([head, *data])


def decode_raw(body: bytes | bytearray) -> Arrays:
    """Return the arrays of a raw body; they share its memory."""
    header, start = _raw_header(body)
    view = memoryview(body)[start:]
    arrays: Arrays = {}
    total = 0
    for name, entry in header.items():
        if name == _METADATA:
            continue
        dtype, shape, begin, end = _raw_entry(name, entry, len(view))
        array = np.frombuffer(view[begin:end], dtype).reshape(shape)
        arrays[name] = array if array.flags.aligned else array.copy()
        total += end - begin
    if total != len(view):
        raise RequestError(
            400, f"the raw body holds {len(view)} bytes of data, but its header declares {total}."
        )
    return arrays


def _raw_header(body: bytes | bytearray) -> tuple[dict[str, Any], int]:
    if len(body) < _LENGTH.size:
        raise RequestError(400, f"a raw body of {len(body)} bytes is too short for a header.")
    (length,) = _LENGTH.unpack_from(body)
    start = _LENGTH.size + length
    if start > len(body):
        raise RequestError(
            400, f"the raw body ends inside its header of {length} bytes; is it safetensors?"
        )
    try:
        header = json.loads(bytes(body[_LENGTH.size : start]))
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the header of the raw body is not JSON: {error}.") from error
    if not isinstance(header, dict):
        raise RequestError(400, "the header of the raw body is not a JSON object.")
    return header, start


def _raw_entry(name: str, entry: Any, size: int) -> tuple[np.dtype[Any], list[int], int, int]:
    """Return type, shape, begin and end of a tensor after validating them."""
    try:
        code, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        sizes = [*shape, begin, end]
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(
            400, f"the header of the raw body lacks dtype, shape or data_offsets of {name!r}."
        ) from error
    if not isinstance(code, str) or code not in DTYPES:
        known = ", ".join(DTYPES)
        raise RequestError(400, f"{name!r} has the unknown dtype {code!r}; known are {known}.")
    if any(type(number) is not int or number < 0 for number in sizes):
        raise RequestError(
            400, f"shape and data_offsets of {name!r} must be numbers of at least 0."
        )
    if len(shape) > MAX_DIMENSIONS:
        raise RequestError(
            400, f"{name!r} has {len(shape)} dimensions; at most {MAX_DIMENSIONS} are supported."
        )
    dtype = DTYPES[code]
    if begin > end or end > size or math.prod(shape) * dtype.itemsize != end - begin:
        raise RequestError(
            400,
            f"the data_offsets [{begin}, {end}] of {name!r} do not hold {code} of shape {shape} "
            f"in {size} bytes.",
        )
    return dtype, shape, begin, end


def encode_json(arrays: Mapping[str, Any], model: Mapping[str, str]) -> bytes:
    """Return a response as JSON; NaN and infinities are written as Python does."""
    outputs = {name: np.asarray(value).tolist() for name, value in arrays.items()}
    return json.dumps({"outputs": outputs, "model": dict(model)}, separators=(",", ":")).encode()


def decode_json(body: bytes | bytearray, specs: Sequence[TensorSpec]) -> Arrays:
    """Return the arrays of a JSON body, in the model's types."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is not JSON: {error}.") from error
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(inputs, dict):
        raise RequestError(400, 'the body must be {"inputs": {name: nested lists of numbers}}.')
    unknown = sorted(request.keys() - {"inputs"})
    if unknown:
        raise RequestError(400, f"the body has the unknown field {unknown[0]!r} besides 'inputs'.")
    check_names(specs, inputs)
    # An array of strings would allocate the longest one's size for each: reject strings first.
    if body.count(b'"') > 2 + sum(2 + name.count('"') for name in inputs):
        first = next((name for name, value in inputs.items() if _has_text(value)), "")
        raise RequestError(400, f"input {first!r} must be nested lists of numbers, not strings.")
    return {spec.name: _from_lists(spec, inputs[spec.name]) for spec in specs}


def _has_text(value: Any) -> bool:
    if isinstance(value, dict):
        return True
    return isinstance(value, str) or (isinstance(value, list) and any(map(_has_text, value)))


def _from_lists(spec: TensorSpec, value: Any) -> np.ndarray[Any, Any]:
    try:
        array = np.array(value)
    except (ValueError, OverflowError) as error:
        raise RequestError(
            400, f"input {spec.name!r} has rows of different lengths or numbers that are too large."
        ) from error
    wanted = np.dtype(spec.dtype)
    if array.dtype.kind not in "biuf":
        raise RequestError(400, f"input {spec.name!r} must be nested lists of numbers.")
    if array.size == 0:  # an empty list has no type
        return array.astype(wanted)
    if array.dtype.kind == "f" and wanted.kind in "biu":
        raise RequestError(
            400, f"input {spec.name!r} holds fractions, but the model takes {spec.dtype}."
        )
    with np.errstate(over="ignore"):
        result = array.astype(wanted)
    fits = (
        np.array_equal(np.isinf(result), np.isinf(array))
        if wanted.kind == "f"
        else (np.array_equal(result, array))
    )
    if not fits:
        raise RequestError(
            400, f"input {spec.name!r} holds a number that does not fit into {spec.dtype}."
        )
    return result
