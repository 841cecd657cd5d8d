import collections
import io
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from fleetx.checkpoint import FormatError
from fleetx.checkpoint.pickle_reader import STRUCTURED_NAMES, load_arrays, load_object
from fleetx.checkpoint.pickle_writer import dump_object

GOLDEN = Path(__file__).parent / "golden"
W = np.arange(12, dtype="float32").reshape(3, 4) - 5.5
B = np.array([1, 255, 65536], dtype="int64")


def load(data):
    return load_object(io.BytesIO(data), source="params")


def dump(values, **options):
    stream = io.BytesIO()
    dump_object(stream, values, **options)
    return stream.getvalue()


def test_static_parameters_of_paddle_18_and_26():
    old = load_arrays(GOLDEN / "paddle18" / "saved.pdparams")
    new = load_arrays(GOLDEN / "paddle26" / "saved.pdparams")
    for found in (old, new):
        assert sorted(found) == ["b", "w"]
        assert (found["w"] == W).all()
        assert (found["b"] == B).all()
        assert found["w"].dtype == np.float32
        assert found["w"].flags.writeable


@pytest.mark.parametrize("name", ["layer.pdparams", "layer2.pdparams"])
def test_layer_parameters_of_paddle_26(name):
    found = load_arrays(GOLDEN / "paddle26" / name)
    assert sorted(found) == ["bias", "weight"]
    assert (found["weight"] == W).all()
    table = load_arrays(GOLDEN / "paddle26" / name, keep_name_table=True)[STRUCTURED_NAMES]
    assert table == {"weight": "linear_0.w_0", "bias": "linear_0.b_0"}


def test_optimizer_state_of_paddle_26():
    found = load_arrays(GOLDEN / "paddle26" / "optimizer.pdopt")
    assert found["LR_Scheduler"]["last_lr"] == 0.5


def test_nested_tensors_of_paddle_26():
    with open(GOLDEN / "paddle26" / "nested.pd", "rb") as stream:
        found = load_object(stream, source="nested")
    (_, seven), one, text = found["list"]
    assert seven == 7.0
    assert (one, text) == (1, "text")
    _, half = found["half"]
    # bfloat16 is the upper half of float32
    assert (half.astype("uint32") << 16).view("float32").tolist() == [1.0, -2.5, 3.0]


VALUES = {
    "w": W,
    "scalar": np.array(2.5, "float32"),
    "empty": np.zeros((0, 3), "int8"),
    "bytes": np.arange(256, dtype="uint8"),
    "flags": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "half": np.array([1.5], "float16"),
    "变量": np.array([1]),
}


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_round_trip(protocol, tmp_path):
    with (tmp_path / "m.pdparams").open("wb") as stream:
        dump_object(stream, VALUES, protocol=protocol)
    found = load_arrays(tmp_path / "m.pdparams")
    # Python's own unpickler must agree: it is what a real Paddle uses.
    plain = pickle.loads((tmp_path / "m.pdparams").read_bytes())
    for result in (found, plain):
        assert list(result) == list(VALUES)
        for name, array in VALUES.items():
            assert result[name].dtype == array.dtype
            assert result[name].shape == array.shape
            assert (result[name] == array).all()


def test_round_trip_of_plain_values():
    values = {"a": [1, -3, 2**40, None, True], "b": (0.5, "x", {"c": []}), "d": np.float64(2)}
    found = load(dump(values))
    assert found == {"a": [1, -3, 2**40, None, True], "b": (0.5, "x", {"c": []}), "d": 2.0}
    assert isinstance(found["b"], tuple)


@pytest.mark.parametrize("protocol", range(6))
def test_whatever_numpy_pickles_is_read(protocol):
    values = collections.OrderedDict(VALUES, f=np.asfortranarray(W), s=np.float64(3.0))
    found = load(pickle.dumps(values, protocol))
    assert (found["f"] == W).all()
    assert found["s"] == 3.0
    for name, array in VALUES.items():
        assert found[name].dtype == array.dtype
        assert (found[name] == array).all()


def test_file_of_python_2_is_read():
    # What Python 2 writes: raw bytes as a plain string instead of encoded text.
    data = W.tobytes()
    text = (
        b"\x80\x02}U\x01wcnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x03K\x04\x86cnumpy\ndtype\nU\x02f4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89U" + struct.pack("B", len(data)) + data + b"tbs."
    )
    assert (load(text)["w"] == W).all()


@pytest.mark.parametrize("protocol", [2, 3])
def test_big_arrays_are_cut_and_joined(protocol):
    data = dump({"w": W, "b": B[:1]}, protocol=protocol, part_bytes=16)
    stored = pickle.loads(data)
    assert sorted(stored) == ["UnpackBigParamInfor@@", "b", "w@@.0", "w@@.1", "w@@.2"]
    assert stored["UnpackBigParamInfor@@"]["w"]["OriginShape"] == (3, 4)
    found = load(data)
    assert sorted(found) == ["b", "w"]
    assert (found["w"] == W).all()


def test_parts_that_do_not_fit_are_refused():
    info = {"w": {"OriginShape": (5,), "slices": ["w@@.0"]}}
    with pytest.raises(FormatError, match="splits 'w' into parts"):
        load(dump({"w@@.0": W, "UnpackBigParamInfor@@": info}))


class Command:
    def __reduce__(self):
        return os.system, ("touch /tmp/fleetx-was-here",)


class Evaluated:
    def __reduce__(self):
        return eval, ("__import__('os').getpid()", {"data": 1})


class Allocation:
    def __reduce__(self):
        return bytearray, (10**12,)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Command(), r"refers to the global (posix|nt)\.system"),
        (Evaluated(), "wants to evaluate"),
        (Allocation(), "bytearray"),
        (collections.Counter(), r"refers to the global collections\.Counter"),
        (np.array([{}], dtype=object), "only numbers and booleans"),
        (np.zeros(2, [("a", "i4")]), "only numbers and booleans"),
        (np.array(["text"]), "only numbers and booleans"),
        (np.array(["2020-01-01"], "M8[D]"), "only numbers and booleans"),
        (np.ma.array([1]), "refers to the global"),
        (len, r"refers to the global (builtins|__builtin__)\.len"),
        (eval, "holds an object"),
        ({1, 2}, "refers to the global|holds an object of type set"),
    ],
)
def test_everything_but_arrays_is_refused(value, problem, protocol):
    with pytest.raises(FormatError, match=f"^params: .*({problem})"):
        load(pickle.dumps({"w": value}, protocol))


def test_bare_class_of_numpy_is_only_text():
    assert load(pickle.dumps({"w": np.ndarray}, 2)) == {"w": "ndarray"}


def test_pickle_cannot_change_the_reader():
    # BUILD with a slot state sets attributes on whatever is on the stack, here the stand-in for
    # eval.
    attack = (
        b"\x80\x02c__builtin__\neval\nN}X\x09\x00\x00\x00_functionc__builtin__\ntuple\ns\x86b0}."
    )
    load(attack)
    with open(GOLDEN / "paddle26" / "saved.pdparams", "rb") as stream:
        assert (load_object(stream, source="f")["w"] == W).all()
    with pytest.raises(FormatError, match="wants to evaluate"):
        load(pickle.dumps(Evaluated(), 2))


def test_container_in_itself_and_shared_containers():
    inner = []
    for _ in range(60):
        inner = [inner, inner]
    load(pickle.dumps({"w": inner}, 2))
    loop = []
    loop.append(loop)
    with pytest.raises(FormatError, match="contains itself"):
        load(pickle.dumps(loop, 2))


def test_array_with_wrong_length_is_refused():
    data = pickle.dumps({"w": W}, 4).replace(b"K\x03K\x04\x86", b"K\x03K\x7f\x86")
    with pytest.raises(FormatError, match=r"shape \[3, 127\] and type float32 with 48 bytes"):
        load(data)


@pytest.mark.parametrize("name", ["paddle18/saved.pdparams", "paddle26/saved.pdparams"])
def test_every_truncation_is_refused(name):
    data = (GOLDEN / name).read_bytes()
    for length in range(len(data)):
        with pytest.raises(FormatError, match="^params: "):
            load(data[:length])


def test_other_files_are_refused(tmp_path):
    (tmp_path / "list").write_bytes(pickle.dumps([1]))
    with pytest.raises(FormatError, match="list: holds a list, not a dictionary"):
        load_arrays(tmp_path / "list")
    (tmp_path / "keys").write_bytes(pickle.dumps({1: 2}))
    with pytest.raises(FormatError, match="keys: has the key 1"):
        load_arrays(tmp_path / "keys")
    (tmp_path / "rest").write_bytes(pickle.dumps({}) + b"x")
    with pytest.raises(FormatError, match="rest: continues after the end"):
        load_arrays(tmp_path / "rest")


def test_values_that_cannot_be_written():
    with pytest.raises(TypeError, match="A set cannot be saved"):
        dump_object(io.BytesIO(), {"w": {1}})
    with pytest.raises(TypeError, match="object cannot be saved"):
        dump_object(io.BytesIO(), {"w": np.array([None])})
    with pytest.raises(ValueError, match="protocol must be"):
        dump_object(io.BytesIO(), {}, protocol=7)
