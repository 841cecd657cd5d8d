from pathlib import Path

import numpy as np
import pytest
from tiny_network import Network

from fleetx.checkpoint import FormatError
from fleetx.static import global_scope, io

GOLDEN = Path(__file__).parent / "golden"
PERSISTABLE = ["b", "rate", "steps", "w"]


def value(name):
    return global_scope().find_var(name).get_tensor().numpy()


def values():
    return {name: value(name) for name in PERSISTABLE}


def spoil(net):
    """Give every variable another value, and return what they are now."""
    Network(scale=5.0).start()
    global_scope().var("rate").get_tensor().set(np.array([9], "float32"))
    global_scope().var("steps").get_tensor().set(np.array([9], "int64"))
    return values()


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name in found:
        assert found[name].dtype == expected[name].dtype
        assert np.array_equal(found[name], expected[name]), name


def test_predicates():
    net = Network()
    every = list(net.main.list_vars())
    assert sorted(v.name for v in filter(io.is_persistable, every)) == PERSISTABLE
    assert sorted(v.name for v in filter(io.is_parameter, every)) == ["b", "w"]
    assert sorted(v.name for v in filter(io.is_belong_to_optimizer, every)) == ["rate", "steps"]
    assert io.get_program_parameter(net.main) == net.main.all_parameters()
    assert len(io.get_program_persistable_vars(net.main)) == 4


@pytest.mark.parametrize("filename", [None, "all"])
def test_persistables_round_trip(tmp_path, filename):
    net = Network().start()
    expected = values()
    io.save_persistables(net.exe, tmp_path / "out", net.main, filename)
    files = sorted(p.name for p in (tmp_path / "out").iterdir() if p.is_file())
    assert files == (PERSISTABLE if filename is None else ["all"])
    assert not np.array_equal(spoil(net)["w"], expected["w"])
    io.load_persistables(net.exe, tmp_path / "out", net.main, filename)
    assert_same(values(), expected)


def test_params_only(tmp_path):
    net = Network().start()
    io.save_params(net.exe, str(tmp_path), net.main)
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["b", "w"]
    spoil(net)
    io.load_params(net.exe, str(tmp_path), net.main)
    assert value("w").max() == 1.0
    assert value("rate") == 9


def test_in_memory():
    net = Network().start()
    expected = values()
    data = io.save_persistables(net.exe, None, net.main)
    assert isinstance(data, bytes)
    spoil(net)
    io.load_persistables(net.exe, None, net.main, filename=data)
    assert_same(values(), expected)


def test_chosen_variables_and_predicate(tmp_path):
    net = Network().start()
    io.save_vars(net.exe, tmp_path, vars=[net.w, net.rate])
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["rate", "w"]
    spoil(net)
    exists = lambda var: (tmp_path / var.name).exists()  # noqa: E731
    io.load_vars(net.exe, tmp_path, net.main, predicate=exists)
    assert value("w").max() == 1.0
    assert value("steps") == 9


def test_files_of_paddle(tmp_path):
    net = Network().start()
    block = net.main.global_block()
    block.create_var(name="n", shape=[3], dtype="int64", persistable=True)
    data = (GOLDEN / "paddle18" / "combined").read_bytes()
    # The golden file's variables are called b and w; here they are n (int64) and w.
    io.load_vars(net.exe, None, net.main, [block.var("n"), net.w], filename=data)
    assert value("n").tolist() == [1, 255, 65536]
    assert value("w")[0, 0] == -5.5


def test_offsets_are_kept(tmp_path):
    net = Network().start()
    var = net.main.global_block().create_var(
        name="seq", dtype="float32", persistable=True, lod_level=2
    )
    io.load_vars(net.exe, GOLDEN / "paddle18", vars=[var])
    assert global_scope().find_var("seq").get_tensor().lod() == [[0, 1, 3], [0, 2, 3, 6]]
    io.save_vars(net.exe, tmp_path, vars=[var])
    golden = (GOLDEN / "paddle18" / "seq").read_bytes()
    assert (tmp_path / "seq").read_bytes() == golden


@pytest.mark.parametrize("filename", [None, "all"])
@pytest.mark.parametrize("damage", ["cut", "longer", "foreign", "missing"])
def test_nothing_changes_when_a_file_is_bad(tmp_path, filename, damage):
    net = Network().start()
    io.save_persistables(net.exe, tmp_path, net.main, filename)
    before = spoil(net)
    path = tmp_path / (filename or "w")  # the last one in the order of names
    data = path.read_bytes()
    bad = {"cut": data[:-1], "longer": data + b"x", "foreign": b"PK" * 50}
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(bad[damage])
    error = FileNotFoundError if damage == "missing" else FormatError
    with pytest.raises(error, match=filename or "w"):
        io.load_persistables(net.exe, tmp_path, net.main, filename)
    assert_same(values(), before)


def test_nothing_changes_when_a_shape_or_type_differs(tmp_path):
    net = Network().start()
    global_scope().var("w").get_tensor().set(np.zeros((4, 3), "float32"))
    io.save_persistables(net.exe, tmp_path, net.main)
    before = spoil(net)
    with pytest.raises(RuntimeError, match=r"'w' has shape \[4, 3\] there.*declares \[3, 4\]"):
        io.load_persistables(net.exe, tmp_path, net.main)
    assert_same(values(), before)
    global_scope().var("w").get_tensor().set(np.zeros((3, 4), "float64"))
    io.save_persistables(net.exe, tmp_path, net.main)
    before = spoil(net)
    with pytest.raises(RuntimeError, match="'w' is of type float64 there.*declares float32"):
        io.load_persistables(net.exe, tmp_path, net.main)
    assert_same(values(), before)


def test_one_element_may_have_no_dimensions(tmp_path):
    net = Network().start()
    global_scope().var("rate").get_tensor().set(np.array(0.25, "float32"))
    io.save_vars(net.exe, tmp_path, vars=[net.rate])
    io.load_vars(net.exe, tmp_path, vars=[net.rate])
    assert value("rate") == 0.25


def test_bfloat16(tmp_path):
    net = Network().start()
    var = net.main.global_block().create_var(
        name="half", shape=[2], dtype="bfloat16", persistable=True
    )
    bits = np.array([0x3F80, 0xC020], "uint16")
    global_scope().var("half").get_tensor().set(bits)
    io.save_vars(net.exe, tmp_path, vars=[var])
    global_scope().var("half").get_tensor().set(np.zeros(2, "uint16"))
    io.load_vars(net.exe, tmp_path, vars=[var])
    assert global_scope().find_var("half").value.tolist() == [1.0, -2.5]


def test_errors(tmp_path):
    net = Network()
    with pytest.raises(RuntimeError, match="'w' cannot be saved.*startup program"):
        io.save_params(net.exe, tmp_path, net.main)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="needs dirname, filename or both"):
        io.load_params(net.exe, None, net.main)
    with pytest.raises(TypeError, match="executor must be an Executor, not str"):
        io.load_params("exe", tmp_path, net.main)
    with pytest.raises(TypeError, match="main_program must be a Program, not str"):
        io.load_vars(net.exe, tmp_path, "program", vars=[net.w])
    with pytest.raises(TypeError, match="main_program must be a Program, not int"):
        io.save_params(net.exe, tmp_path, 3)
    with pytest.warns(UserWarning, match="no variable in your model"):
        assert io.save_vars(net.exe, tmp_path, net.main, vars=[]) is None


def test_value_of_a_parameter():
    net = Network().start()
    assert (io.get_parameter_value(net.b, net.exe) == -1).all()
    assert (io.get_parameter_value_by_name("w", net.exe, net.main) == 1).all()
    with pytest.raises(AssertionError, match="not a Parameter"):
        io.get_parameter_value(net.rate, net.exe)
