import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_network import Network

from fleetx.checkpoint import FormatError
from fleetx.static import Variable, global_scope, io
from fleetx.static.protobuf.serialize import program_from_bytes

GOLDEN = Path(__file__).parent / "golden"


def value(name):
    return global_scope().find_var(name).get_tensor().numpy()


@pytest.fixture
def net():
    return Network().start()


def spoil():
    Network(scale=5.0).start()
    global_scope().var("steps").get_tensor().set(np.array([9], "int64"))


@pytest.mark.parametrize("protocol", [2, 4])
def test_save_and_load(tmp_path, net, protocol):
    io.save(net.main, tmp_path / "deep" / "m", protocol=protocol)
    files = sorted(p.name for p in (tmp_path / "deep").iterdir() if p.is_file())
    assert files == ["m.pdmodel", "m.pdopt", "m.pdparams"]
    with open(tmp_path / "deep" / "m.pdparams", "rb") as stream:
        assert sorted(pickle.load(stream)) == ["b", "w"]
    spoil()
    io.load(net.main, str(tmp_path / "deep" / "m.pdparams"), net.exe)
    assert value("w").max() == 1
    assert value("steps") == 7
    model = tmp_path / "deep" / "m.pdmodel"
    assert len(program_from_bytes(model.read_bytes(), source="m").global_block().ops) == 3


def test_load_into_an_empty_scope(tmp_path, net):
    io.save(net.main, tmp_path / "m")
    global_scope().erase(["w", "b", "rate", "steps"])
    io.load(net.main, tmp_path / "m")
    assert value("w").max() == 1


@pytest.mark.parametrize("name", ["m.pdparams", "m.pdopt"])
def test_damaged_state_changes_nothing(tmp_path, net, name):
    io.save(net.main, tmp_path / "m")
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-10])
    spoil()
    with pytest.raises(FormatError, match=name):
        io.load(net.main, tmp_path / "m", net.exe)
    assert value("w").max() == 5


def test_missing_variables_and_wrong_shapes_change_nothing(tmp_path, net):
    io.save(net.main, tmp_path / "m")
    shutil.rmtree(tmp_path / ".fleetx")  # the checksums of what is replaced below
    spoil()
    (tmp_path / "m.pdopt").write_bytes(pickle.dumps({"rate": np.array([1], "float32")}))
    with pytest.raises(AssertionError, match=r"m\.pdopt has no variable 'steps'"):
        io.load(net.main, tmp_path / "m", net.exe)
    (tmp_path / "m.pdopt").unlink()
    with pytest.raises(AssertionError, match="There is no file .*m.pdopt"):
        io.load(net.main, tmp_path / "m", net.exe)
    wrong = {"w": np.zeros((4, 4), "float32"), "b": np.zeros(4, "float32")}
    (tmp_path / "m.pdparams").write_bytes(pickle.dumps(wrong))
    with pytest.raises(RuntimeError, match=r"m\.pdparams: variable 'w' has shape \[4, 4\]"):
        io.load(net.main, tmp_path / "m", net.exe)
    assert value("w").max() == 5


def test_load_from_a_folder_and_a_combined_file(tmp_path, net):
    io.save_persistables(net.exe, tmp_path / "folder", net.main)
    io.save_params(net.exe, tmp_path, net.main, filename="all")
    spoil()
    io.load(net.main, tmp_path / "folder", net.exe)
    assert value("steps") == 7
    spoil()
    with pytest.raises(ValueError, match="var_list is needed"):
        io.load(net.main, tmp_path / "all", net.exe)
    with pytest.raises(ValueError, match="An executor is needed"):
        io.load(net.main, tmp_path / "folder")
    with pytest.raises(FileNotFoundError, match=r"neither .*none.pdparams nor .*none"):
        io.load(net.main, tmp_path / "none", net.exe)
    # What Paddle raises: RuntimeError for a file of other variables, LookupError for unknown ones.
    with pytest.raises(RuntimeError, match="all"):
        io.load(
            net.main,
            tmp_path / "all",
            net.exe,
            list(filter(io.is_persistable, net.main.list_vars())),
        )
    with pytest.raises(LookupError, match="'other' is not in the program"):
        io.load(
            net.main,
            tmp_path / "all",
            net.exe,
            [Variable(Network().main.global_block(), name="other")],
        )
    io.load(net.main, tmp_path / "all", net.exe, [net.w, net.b])
    assert value("w").max() == 1


def test_program_state(tmp_path, net):
    io.save(net.main, tmp_path / "m")
    io.save_persistables(net.exe, tmp_path / "folder", net.main)
    io.save_params(net.exe, tmp_path, net.main, filename="all")
    state = io.load_program_state(tmp_path / "m")
    assert sorted(state) == ["b", "rate", "steps", "w"]
    assert sorted(io.load_program_state(tmp_path / "folder")) == sorted(state)
    assert sorted(io.load_program_state(tmp_path / "folder", [net.w])) == ["w"]
    assert sorted(io.load_program_state(tmp_path / "all", [net.w, net.b])) == ["b", "w"]
    (tmp_path / "folder" / "note.txt").write_text("not a variable")
    with pytest.warns(UserWarning, match="note.txt"):
        assert "w" in io.load_program_state(tmp_path / "folder")
    spoil()
    with pytest.warns(UserWarning, match="not in the program: extra"):
        io.set_program_state(net.main, {**state, "extra": np.zeros(1)})
    assert value("w").max() == 1
    assert value("steps") == 7


def test_wrong_state_changes_nothing(net):
    state = io.program_state_dict(net.main)
    assert sorted(state) == ["b", "rate", "steps", "w"]
    assert sorted(io.program_state_dict(net.main, "param")) == ["b", "w"]
    assert sorted(io.program_state_dict(net.main, "opt")) == ["rate", "steps"]
    with pytest.raises(ValueError, match="mode of program_state_dict must be"):
        io.program_state_dict(net.main, "some")
    bad = {**state, "b": state["b"] + 1, "w": state["w"].astype("float64")}
    with pytest.raises(AssertionError, match="'w' has shape .* float32; .* float64"):
        io.set_program_state(net.main, bad)
    assert (value("b") == -1).all()


def test_set_state_wants_values_first():
    with pytest.raises(AssertionError, match="startup program"):
        io.set_program_state(Network().main, {})


@pytest.mark.parametrize("version", ["paddle18", "paddle26"])
def test_state_of_paddle(version):
    state = io.load_program_state(GOLDEN / version / "saved")
    assert state["w"][0, 0] == -5.5
    program = program_from_bytes((GOLDEN / version / "saved.pdmodel").read_bytes(), source=version)
    io.load(program, GOLDEN / version / "saved")


def test_objects(tmp_path, net):
    import torch

    scoped = global_scope().find_var("w").get_tensor()
    values = {"t": torch.ones(2), "list": [scoped, 1, "x"], "h": torch.ones(1).bfloat16()}
    io.save_object(values, tmp_path / "o.pd")
    found = io.load_object(tmp_path / "o.pd")
    assert found["t"].tolist() == [1, 1]
    assert found["list"][0].shape == (3, 4)
    assert found["list"][1:] == [1, "x"]
    assert found["h"].dtype == np.uint16
    assert io.load_object(GOLDEN / "paddle26" / "nested.pd")["list"][0] == 7.0
    layer = io.load_object(GOLDEN / "paddle26" / "layer.pdparams")
    assert sorted(layer) == ["bias", "weight"]
    with pytest.raises(ValueError, match="is a folder"):
        io.save_object({}, str(tmp_path) + "/")


def test_errors_of_save(tmp_path, net):
    with pytest.raises(AssertionError, match="must end in the name of a file"):
        io.save(net.main, str(tmp_path) + "/")
    with pytest.raises(ValueError, match="protocol must be"):
        io.save(net.main, tmp_path / "m", protocol=1)
    global_scope().erase(["b"])
    with pytest.raises(RuntimeError, match="'b' cannot be saved"):
        io.save(net.main, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_single_number_fits_any_shape_of_one_element(net):
    io.set_program_state(net.main, {"rate": np.array(0.5, "float32")})  # [] instead of [1]
    assert value("rate").tolist() == [0.5]
    with pytest.raises(ValueError, match=r"'w' has shape \[3, 4\]"):
        io.set_program_state(net.main, {"w": np.array(0.5, "float32")})
