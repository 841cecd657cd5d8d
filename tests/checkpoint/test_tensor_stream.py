"""Tensors from a stream: what the writer wrote is read, and anything else is a FormatError."""

import io
import json

import pytest
import torch

from fleetx.checkpoint import FormatError
from fleetx.checkpoint.file_list import HashingStream
from fleetx.checkpoint.manifest import write_safetensors
from fleetx.checkpoint.tensor_stream import read_tensors


def read(data):
    return read_tensors(io.BytesIO(data), len(data), "file")


def with_header(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(start, end, shape, dtype="U8"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_what_was_written_is_read():
    tensors = {
        "a": torch.randn(3, 4),
        "b": torch.tensor(5),
        "c": torch.zeros(2, 0, dtype=torch.bfloat16),
        "d": torch.tensor([True, False]),
        "e": torch.arange(3_000_000),  # more than is read at once
    }
    stream = io.BytesIO()
    hashing = HashingStream(stream)
    write_safetensors(hashing.as_binary(), tensors)
    found, listed = read(stream.getvalue())
    assert listed == hashing.entry
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        b"\xff" * 100,
        with_header(b"{"),
        with_header(b"[" * 100_000),
        with_header([1]),
        with_header({"a": 1}),
        with_header({"a": entry(0, 4, [4], "C64")}, b"1234"),
        with_header({"a": entry(0, 4, [5])}, b"1234"),
        with_header({"a": entry(0, 4, [-4])}, b"1234"),
        with_header({"a": entry(0, 4, [2.0, 2])}, b"1234"),
        with_header({"a": entry(0, 4, "four")}, b"1234"),
        with_header({"a": entry(0, 4, [4]), "b": entry(0, 4, [4])}, b"1234"),
        with_header({"a": entry(0, 1, [1]), "b": entry(2, 4, [2])}, b"1234"),
        with_header({"a": entry(0, 1 << 60, [1 << 60])}, b"1234"),
        with_header({"a": entry(0, 0, [1 << 70, 0])}),
        with_header({"a": entry(0, 3, [3])}, b"1234"),
        with_header({"a": {"dtype": "U8", "shape": [4], "data_offsets": [4]}}, b"1234"),
    ],
    ids=range(18),
)
def test_anything_else_is_an_error(data):
    with pytest.raises(FormatError, match=r"^file: "):
        read(data)


def test_a_stream_that_ends_early_is_an_error():
    data = with_header({"a": entry(0, 4, [4])}, b"1234")
    with pytest.raises(FormatError, match="was cut short"):
        read_tensors(io.BytesIO(data[:-1]), len(data), "file")
