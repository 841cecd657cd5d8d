import warnings
from pathlib import Path

import numpy as np
import pytest
from tiny_network import Network

from fleetx.checkpoint import FormatError
from fleetx.static import Scope, global_scope, io, layers, program_guard, scope_guard
from fleetx.static.io.inference_program import append_fetch_ops, prepend_feed_ops
from fleetx.static.protobuf.serialize import program_to_bytes

GOLDEN = Path(__file__).parent / "golden"


def outputs(net, loaded):
    program, feeds, fetches = loaded
    assert feeds == ["x"]
    feed = {"x": np.arange(6, dtype="float32").reshape(2, 3)}
    return net.exe.run(program, feed=feed, fetch_list=fetches)


@pytest.mark.parametrize("params", [None, "weights"])
@pytest.mark.parametrize("model", [None, "model"])
def test_folder_round_trip(tmp_path, model, params):
    net = Network().start()
    before = program_to_bytes(net.main)
    expected = net.run()
    names = io.save_inference_dir(
        tmp_path, ["x"], [net.y], net.exe, net.main, model_filename=model, params_filename=params
    )
    assert names == ["save_infer_model/scale_0.tmp_0"]
    files = sorted(p.name for p in tmp_path.iterdir() if p.is_file())
    assert files == sorted([model or "__model__", *([params] if params else ["b", "w"])])
    assert program_to_bytes(net.main) == before
    with scope_guard(Scope()):
        loaded = io.load_inference_dir(tmp_path, net.exe, model, params)
        assert [v.name for v in loaded[2]] == names
        assert np.array_equal(outputs(net, loaded)[0], expected)


def test_prefix_round_trip(tmp_path):
    net = Network().start()
    expected = net.run(fetch="pre")
    prefix = tmp_path / "deep" / "model"
    io.save_inference_model(prefix, net.x, [net.y, net.pre], net.exe, program=net.main)
    files = sorted(p.name for p in prefix.parent.iterdir() if p.is_file())
    assert files == ["model.pdiparams", "model.pdmodel"]
    with scope_guard(Scope()):
        loaded = io.load_inference_model(str(prefix), net.exe)
        assert np.array_equal(outputs(net, loaded)[1], expected)
    with scope_guard(Scope()):
        loaded = io.load_inference_model(
            str(prefix.parent), net.exe, model_filename="model", params_filename="model"
        )
        assert np.array_equal(outputs(net, loaded)[1], expected)


def test_in_memory():
    net = Network().start()
    expected = net.run()
    program = io.serialize_program([net.x], [net.y], program=net.main)
    params = io.serialize_persistables([net.x], [net.y], net.exe, program=net.main)
    with scope_guard(Scope()):
        loaded = io.load_inference_model(
            None, net.exe, model_filename=program, params_filename=params
        )
        assert np.array_equal(outputs(net, loaded)[0], expected)
    with scope_guard(Scope()):
        copy = io.deserialize_program(program)
        io.deserialize_persistables(copy, params, net.exe)
        assert np.array_equal(net.run(copy), expected)


def test_variables_of_a_normalized_program_as_bytes():
    net = Network().start()
    normal = io.normalize_program(net.main, net.x, net.y)
    params = io.serialize_persistables([net.x], [net.y], net.exe, program=net.main)
    assert io.serialize_variables(normal, net.exe) == params
    assert io.serialize_variables(net.main, net.exe) != params  # rate and steps as well


def test_markers_of_feeds_and_fetches():
    net = Network().start()
    bare = net.main.clone()
    prepend_feed_ops(bare, [])
    with pytest.raises(ValueError, match=r"feeded_var_names\[0\] is 'none', which is not in"):
        prepend_feed_ops(bare.clone(), ["none"])
    prepend_feed_ops(bare, ["x"])
    append_fetch_ops(bare, ["y"])
    types = [op.type for op in bare.global_block().ops]
    assert (types[0], types[-1]) == ("feed", "fetch")
    assert io.feed_names_of(bare) == ["x"]
    assert io.fetch_names_of(bare) == ["y"]


def test_saved_model_can_be_saved_again(tmp_path):
    net = Network().start()
    expected = net.run()
    io.save_inference_dir(tmp_path / "a", ["x"], [net.y], net.exe, net.main)
    program, feeds, fetches = io.load_inference_dir(tmp_path / "a", net.exe)
    io.save_inference_dir(tmp_path / "b", feeds, fetches, net.exe, program)
    loaded = io.load_inference_dir(tmp_path / "b", net.exe)
    assert np.array_equal(outputs(net, loaded)[0], expected)


def golden_output():
    weight = np.arange(12, dtype="float32").reshape(3, 4) - 5.5
    return np.arange(6, dtype="float32").reshape(2, 3) @ weight


def test_model_of_paddle_18(tmp_path):
    net = Network()
    for name in ("__model__", "params"):
        source = GOLDEN / (
            "paddle18/__model__" if name == "__model__" else "paddle26/inference.pdiparams"
        )
        (tmp_path / name).write_bytes(source.read_bytes())
    loaded = io.load_inference_dir(tmp_path, net.exe, params_filename="params")
    assert np.allclose(outputs(net, loaded)[0], golden_output())


def test_model_of_paddle_26():
    net = Network()
    loaded = io.load_inference_model(str(GOLDEN / "paddle26" / "inference"), net.exe)
    assert np.allclose(outputs(net, loaded)[0], golden_output())


def test_only_what_the_targets_need_is_saved(tmp_path):
    net = Network().start()
    io.save_inference_dir(tmp_path, ["x"], [net.tmp], net.exe, net.main)
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["__model__", "w"]


def test_bodies_of_pruned_control_flow_are_left_out(tmp_path):
    net = Network().start()
    dead, alive = net.main._create_block(0), net.main._create_block(0)
    net.main.current_block_idx = 0
    root = net.main.global_block()
    lost = root.create_var(name="lost", dtype="float32")
    dead.append_op("scale", {"X": [net.rate]}, {"Out": [lost]}, {"scale": 2.0})
    attrs = {"sub_block": dead, "is_scalar_condition": True}
    root.append_op("conditional_block", {"Cond": [net.steps]}, {"Out": [lost]}, attrs)
    root.ops[2]._set_attr("sub_block", alive)
    io.save_inference_dir(tmp_path, ["x"], [net.y], net.exe, net.main)
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["__model__", "b", "w"]
    program = io.load_inference_dir(tmp_path, net.exe)[0]
    assert program.num_blocks == 2
    relu = next(op for op in program.global_block().ops if op.type == "relu")
    assert relu.attr("sub_block") is program.blocks[1]
    assert net.main.num_blocks == 3


def test_program_only_and_whole_program(tmp_path):
    net = Network().start()
    with pytest.warns(UserWarning, match="program_only"):
        io.save_inference_dir(tmp_path / "a", ["x"], [net.y], net.exe, net.main, program_only=True)
    assert [p.name for p in (tmp_path / "a").iterdir() if p.is_file()] == ["__model__"]
    io.save_inference_dir(
        tmp_path / "b", ["x"], [net.y], net.exe, net.main, export_for_deployment=False
    )
    files = sorted(p.name for p in (tmp_path / "b").iterdir() if p.is_file())
    assert files == ["__model__.main_program", "b", "rate", "steps", "w"]


def test_wrong_arguments(tmp_path):
    net = Network().start()
    with pytest.raises(ValueError, match="list of names"):
        io.save_inference_dir(tmp_path, [net.x], [net.y], net.exe, net.main)
    with pytest.raises(ValueError, match="target_vars"):
        io.save_inference_dir(tmp_path, ["x"], ["y"], net.exe, net.main)
    with pytest.raises(ValueError, match="do not depend on feed 'rate'"):
        io.save_inference_dir(tmp_path, ["x", "rate"], [net.y], net.exe, net.main)
    with pytest.raises(ValueError, match="feed_vars must be"):
        io.save_inference_model(str(tmp_path / "m"), ["x"], [net.y], net.exe, program=net.main)
    with pytest.raises(ValueError, match="is a folder"):
        io.save_inference_model(str(tmp_path) + "/", [net.x], [net.y], net.exe, program=net.main)
    (tmp_path / "m.pdmodel").mkdir()
    with pytest.raises(ValueError, match="m.pdmodel' is a folder"):
        io.save_inference_model(str(tmp_path / "m"), [net.x], [net.y], net.exe, program=net.main)
    (tmp_path / "m.pdmodel").rmdir()
    with pytest.raises(TypeError, match="fetch_vars must be"):
        io.normalize_program(net.main, net.x, "y")
    with pytest.raises(ValueError, match="There is no folder"):
        io.load_inference_dir(tmp_path / "none", net.exe)
    with pytest.raises(ValueError, match="no argument 'pserver_endpoints'"):
        io.load_inference_model(str(tmp_path / "m"), net.exe, pserver_endpoints=[])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["m.pdmodel", "m.pdiparams"])
def test_damaged_models_change_nothing(tmp_path, name):
    net = Network().start()
    io.save_inference_model(str(tmp_path / "m"), net.x, net.y, net.exe, program=net.main)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    Network(scale=3.0).start()
    with pytest.raises(FormatError, match=name):
        io.load_inference_model(str(tmp_path / "m"), net.exe)
    assert global_scope().find_var("w").get_tensor().numpy().max() == 3.0


def test_auc_states_are_mentioned(tmp_path):
    net = Network()
    with program_guard(net.main, net.startup):
        label = layers.data("label", [1], dtype="int64")
        layers.auc(layers.softmax(net.y), label)
    net.start()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        io.save_inference_dir(tmp_path / "a", ["x"], [net.y], net.exe, net.main)
        io.save_inference_model(tmp_path / "b", net.x, net.y, net.exe, program=net.main)
    assert [str(warning.message) for warning in caught] == [
        "the model has auc ops: reset their states before saving it for inference."
    ] * 2


def test_model_without_variables(tmp_path):
    net = Network()
    block = net.main.global_block()
    out = block.create_var(name="twice", dtype="float32")
    block.append_op("scale", {"X": [net.x]}, {"Out": [out]}, {"scale": 2.0})
    with pytest.warns(UserWarning, match="^no variable in your model"):
        io.save_inference_model(tmp_path / "m", net.x, out, net.exe, program=net.main)
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["m.pdmodel"]
    program, feeds, fetches = io.load_inference_model(tmp_path / "m", net.exe)
    assert [op.type for op in program.global_block().ops] == ["feed", "scale", "scale", "fetch"]
