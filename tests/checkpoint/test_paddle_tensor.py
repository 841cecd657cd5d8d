import io
import struct
from pathlib import Path

import numpy as np
import pytest

from fleetx.checkpoint import FormatError
from fleetx.checkpoint.paddle_tensor import (
    kind_of,
    parse_tensors,
    read_tensor,
    read_tensors,
    write_tensor,
)

GOLDEN = Path(__file__).parent / "golden"
W = np.arange(12, dtype="float32").reshape(3, 4) - 5.5
TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16"]
TYPES += ["float16", "float32", "float64", "complex64", "complex128"]
B = np.array([1, 255, 65536], dtype="int64")


def record(array, lod=None):
    stream = io.BytesIO()
    write_tensor(stream, array, lod)
    return stream.getvalue()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 3, 4)])
def test_round_trip(dtype, shape):
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    found, lod = read_tensor(io.BytesIO(record(array)), source="f")
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert (found == array).all()
    assert lod == []
    assert found.flags.writeable


def test_any_memory_layout_is_written_in_order():
    array = np.arange(24, dtype=">i4").reshape(4, 6).T[::2]
    found, _ = read_tensor(io.BytesIO(record(array)), source="f")
    assert (found == array).all()


def test_lod_round_trip():
    lod = [[0, 1, 3], [0, 2, 3, 6]]
    array = np.arange(6, dtype="float32").reshape(6, 1)
    assert read_tensor(io.BytesIO(record(array, lod)), source="f").lod == lod


def test_bytes_are_paddles():
    assert record(W) == (GOLDEN / "paddle26" / "inference.pdiparams").read_bytes()
    assert record(B) + record(W) == (GOLDEN / "paddle18" / "combined").read_bytes()
    sequence = np.arange(6, dtype="float32").reshape(6, 1)
    lod = [[0, 1, 3], [0, 2, 3, 6]]
    assert record(sequence, lod) == (GOLDEN / "paddle18" / "seq").read_bytes()


def test_combined_file_of_paddle():
    found = read_tensors(GOLDEN / "paddle18" / "combined", ["b", "w"])
    assert list(found) == ["b", "w"]
    assert (found["b"].array == B).all()
    assert (found["w"].array == W).all()


def test_every_truncation_is_refused():
    data = record(W, [[0, 1, 3]])
    for length in range(len(data)):
        with pytest.raises(FormatError, match=r"^weights( \(variable 'w'\))?: "):
            parse_tensors(data[:length], ["w"], source="weights")


def test_bytes_after_the_end_are_refused():
    with pytest.raises(FormatError, match="continues for 1 bytes after its 1 expected variable"):
        parse_tensors(record(W) + b"x", ["w"], source="f")


def test_too_few_records_are_refused():
    with pytest.raises(FormatError, match=r"ends after 1 variable\(s\), before 'v'"):
        parse_tensors(record(W), ["w", "v"], source="f")


def description(dims, kind=5):
    body = bytes([8, kind]) + b"".join(b"\x10" + d for d in dims)
    return struct.pack("<IQIi", 0, 0, 0, len(body)) + body


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"PK\x03\x04" + bytes(100), "LoD version 67324752"),
        (struct.pack("<IQ", 0, 2**60), "LoD levels"),
        (struct.pack("<IQQ", 0, 1, 2**62) + bytes(64), "LoD level 0"),
        (struct.pack("<IQQ", 0, 1, 5) + bytes(64), "multiple of 8"),
        (struct.pack("<IQIi", 0, 0, 7, 2), "tensor version 7"),
        (struct.pack("<IQIi", 0, 0, 0, -1), "length -1"),
        (struct.pack("<IQIi", 0, 0, 0, 4) + b"\xff\xff\xff\xff", "TensorDesc"),
        (description([b"\x80\x80\x80\x80\x80\x80\x80\x40"] * 9), "needs .* bytes"),
        (description([b"\x01"] * 70) + bytes(4), "dimension"),
        (description([b"\xff" * 9 + b"\x01"]), "invalid shape"),
        (description([b"\x01"], kind=7), "unknown type"),
        (description([b"\x01"], kind=99), "TensorDesc|unknown type"),
    ],
)
def test_damaged_headers_are_refused(data, problem):
    with pytest.raises(FormatError, match=problem):
        read_tensor(io.BytesIO(data), source="f")


@pytest.mark.parametrize("lod", [[[0, 2]], [[1, 3]], [[0, 2, 1, 3]], [[0, 1], [0, 1, 3]], [[]]])
def test_impossible_lod_is_refused(lod):
    with pytest.raises(FormatError, match="must increase from 0"):
        read_tensor(io.BytesIO(record(W, lod)), source="f")


def test_types_without_a_place_in_the_format():
    with pytest.raises(TypeError, match="uint32 cannot be stored"):
        kind_of(np.dtype("uint32"))
