"""Bodies of requests: what can be read comes back the same, all else is refused in a sentence."""

import json
import struct
from contextlib import suppress

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetx.serving import RequestError, TensorSpec
from fleetx.serving.bodies import decode_json, decode_raw, encode_json, encode_raw

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
SPECS = (TensorSpec("x", (-1, 2), "float32"), TensorSpec("n", (-1,), "int64"))


def arrays():
    generator = np.random.default_rng(1)
    found = {name: (generator.normal(size=(2, 3)) * 50).astype(name) for name in DTYPES}
    return {**found, "scalar": np.array(3.5, "float32"), "empty": np.zeros((0, 4), "int32")}


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert second[name].dtype == value.dtype
        np.testing.assert_array_equal(second[name], value)


def test_raw_bodies_are_those_of_safetensors():
    body = encode_raw(arrays(), {"version": "v1"})
    assert_equal(safetensors.numpy.load(body), arrays())
    assert_equal(decode_raw(body), arrays())
    assert_equal(decode_raw(bytearray(safetensors.numpy.save(arrays()))), arrays())


def test_raw_data_need_not_be_aligned():
    header = b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} '
    assert len(header) % 4
    body = struct.pack("<Q", len(header)) + header + np.array([1, 2], "float32").tobytes()
    found = decode_raw(bytearray(body))["x"]
    assert found.flags.aligned
    assert found.tolist() == [1, 2]


def test_big_endian_arrays_and_views_are_written_as_they_read():
    value = np.arange(12, dtype=">f4").reshape(3, 4).T
    np.testing.assert_array_equal(decode_raw(encode_raw({"x": value}))["x"], value)


def raw(header, data=b""):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(text)) + text + data


def entry(**changes):
    return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"abc", "too short for a header"),
        (struct.pack("<Q", 1 << 60) + b"{}", "ends inside its header"),
        (raw(b"[nonsense"), "is not JSON"),
        (raw([1]), "is not a JSON object"),
        (raw({"x": 3}), "lacks dtype, shape or data_offsets of 'x'"),
        (raw(entry(dtype="F7"), b"12345678"), "unknown dtype 'F7'"),
        (raw(entry(dtype=[]), b"12345678"), "unknown dtype"),
        (raw(entry(shape=[-2]), b"12345678"), "must be numbers of at least 0"),
        (raw(entry(shape=[1.5]), b"12345678"), "must be numbers of at least 0"),
        (raw(entry(shape=[3]), b"12345678"), "do not hold F32 of shape"),
        (raw(entry(), b"1234567"), "do not hold F32 of shape"),
        (raw(entry(shape=[1 << 62, 4]), b"12345678"), "do not hold F32 of shape"),
        (raw(entry(), b"123456789"), "holds 9 bytes of data, but its header declares 8"),
    ],
)
def test_damaged_raw_bodies_are_refused(body, sentence):
    with pytest.raises(RequestError, match=sentence) as caught:
        decode_raw(body)
    assert caught.value.status == 400


@settings(deadline=None, derandomize=True)
@given(st.binary(max_size=200), st.integers(0, 100))
def test_no_raw_body_breaks_the_reader(noise, place):
    body = bytearray(encode_raw({"x": np.zeros((2, 2), "float32")}))
    body[place : place + len(noise)] = noise
    with suppress(RequestError):
        decode_raw(body)


def test_json_comes_back_exactly():
    value = np.array([[0.1, -1e-38], [3e38, 5]], "float32")
    body = encode_json({"x": value, "n": np.array([1, 2])}, {"version": "v1"})
    answer = json.loads(body)
    assert answer["model"] == {"version": "v1"}
    request = json.dumps({"inputs": answer["outputs"]}).encode()
    found = decode_json(request, SPECS)
    np.testing.assert_array_equal(found["x"], value)
    assert found["n"].dtype == np.int64


def test_not_a_number_survives():
    body = encode_json({"x": np.array([np.nan, np.inf], "float32")}, {})
    assert body == b'{"outputs":{"x":[NaN,Infinity]},"model":{}}'


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b"[]", "the body must be"),
        (b'{"inputs": 3}', "the body must be"),
        (b'{"inputs": {}, "extra": 1}', "unknown field 'extra'"),
        (b'{"inputs": {"z": 1}}', "no input 'z'"),
        (b'{"inputs": {"x": [[1, 2]]}}', "input 'n' is missing"),
        (b'{"inputs": {"x": [[1, 2], [3]], "n": [1]}}', "'x' has rows of different lengths"),
        (b'{"inputs": {"x": [["1", "2"]], "n": [1]}}', "'x' must be nested lists of numbers"),
        (b'{"inputs": {"x": [[null, 1]], "n": [1]}}', "'x' must be nested lists of numbers"),
        (b'{"inputs": {"x": [[1, 2]], "n": [1.5]}}', "'n' holds fractions"),
        (b'{"inputs": {"x": [[1, 1e39]], "n": [1]}}', "does not fit into float32"),
        (b'{"inputs": {"x": [[1, 2]], "n": [18446744073709551615]}}', "does not fit into int64"),
    ],
)
def test_wrong_json_is_refused(body, sentence):
    with pytest.raises(RequestError, match=sentence) as caught:
        decode_json(body, SPECS)
    assert caught.value.status == 400


def test_booleans_and_small_integers_keep_their_range():
    specs = (TensorSpec("b", (-1,), "bool"), TensorSpec("u", (-1,), "uint8"))
    found = decode_json(b'{"inputs": {"b": [true, 0], "u": [255]}}', specs)
    assert found["b"].tolist() == [True, False]
    with pytest.raises(RequestError, match="'u' holds a number that does not fit into uint8"):
        decode_json(b'{"inputs": {"b": [true], "u": [256]}}', specs)


def test_empty_list_has_the_type_of_the_model():
    found = decode_json(b'{"inputs": {"x": [], "n": []}}', SPECS)
    assert [found[name].dtype.name for name in ("x", "n")] == ["float32", "int64"]
