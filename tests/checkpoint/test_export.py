import json

import numpy as np
import pytest
import torch
from tiny_network import Network

from fleetx.static import Program, Scope, global_scope, program_guard, scope_guard
from fleetx.static.export import ProgramModule, export_onnx, export_torch

onnxruntime = pytest.importorskip("onnxruntime")
exports = pytest.mark.skipif(
    not hasattr(torch.export.Dim, "AUTO"), reason="programs are exported with PyTorch 2.6 or newer"
)


def feed(batch=5):
    return np.random.RandomState(0).randn(batch, 3).astype("float32")


def expected(net, x, name="y"):
    return net.exe.run(net.main, feed={"x": x}, fetch_list=[name])[0]


@exports
def test_torch_file_gives_the_same_outputs_for_any_batch(tmp_path):
    net = Network().start()
    export_torch(tmp_path / "m.pt2", ["x"], [net.y, net.pre], net.exe, net.main)
    names = {"fleetx.json": ""}
    module = torch.export.load(tmp_path / "m.pt2", extra_files=names).module()
    assert json.loads(names["fleetx.json"]) == {"feeds": ["x"], "fetches": ["y", "pre"]}
    for batch in (1, 2, 7):
        x = feed(batch)
        y, pre = module(torch.from_numpy(x))
        assert np.allclose(y, expected(net, x), atol=1e-6)
        assert np.allclose(pre, expected(net, x, "pre"), atol=1e-6)


@pytest.mark.slow
@exports
def test_onnx_file_gives_the_same_outputs_for_any_batch(tmp_path):
    net = Network().start()
    export_onnx(tmp_path / "m.onnx", net.x, net.y, net.exe, net.main)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    assert [i.name for i in session.get_inputs()] == ["x"]
    assert [o.name for o in session.get_outputs()] == ["y"]
    for batch in (1, 2, 7):
        x = feed(batch)
        assert np.allclose(session.run(None, {"x": x})[0], expected(net, x), atol=1e-6)


def convolution_network(net):
    """Convolution, normalisation, pooling, look-up: what served models are made of."""
    from fleetx.static import layers

    net.main, net.startup = Program(), Program()
    with program_guard(net.main, net.startup):
        image = layers.data("image", [2, 8, 8])
        word = layers.data("word", [1], dtype="int64")
        hidden = layers.conv2d(image, 4, 3, padding=1, act="relu")
        hidden = layers.batch_norm(hidden)
        hidden = layers.pool2d(hidden, 2, "max", pool_stride=2)
        hidden = layers.dropout(layers.fc(hidden, 6, act="tanh"), 0.5)
        out = layers.softmax(layers.fc([hidden, layers.embedding(word, [9, 6])], 3))
    net.exe.run(net.startup)
    random = np.random.RandomState(1)
    inputs = {
        "image": random.randn(3, 2, 8, 8).astype("float32"),
        "word": random.randint(0, 9, (3, 1)).astype("int64"),
    }
    test = net.main.clone(for_test=True)
    return inputs, out, net.exe.run(test, feed=inputs, fetch_list=[out])[0]


@pytest.mark.slow
@exports
def test_convolution_network(tmp_path):
    net = Network()
    inputs, out, wanted = convolution_network(net)
    export_torch(tmp_path / "m.pt2", list(inputs), out, net.exe, net.main)
    module = torch.export.load(tmp_path / "m.pt2").module()
    (found,) = module(*map(torch.from_numpy, inputs.values()))
    assert np.allclose(found, wanted, atol=1e-5)
    export_onnx(tmp_path / "m.onnx", list(inputs), out, net.exe, net.main)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    assert np.allclose(session.run(None, inputs)[0], wanted, atol=1e-5)


def test_module_holds_copies_of_the_variables():
    net = Network().start()
    module = ProgramModule(net.main, feeds=["x"], fetches=["y"])
    assert sorted(dict(module.named_parameters())) == ["b", "w"]
    module.w.data.zero_()
    assert global_scope().find_var("w").get_tensor().numpy().any()


def test_a_torch_that_cannot_export(tmp_path, monkeypatch):
    monkeypatch.delattr(torch.export.Dim, "AUTO", raising=False)
    net = Network().start()
    with pytest.raises(RuntimeError, match="needs PyTorch 2.6 or newer, but this is"):
        export_torch(tmp_path / "m.pt2", ["x"], [net.y], net.exe, net.main)
    assert list(tmp_path.iterdir()) == []


def test_errors(tmp_path):
    net = Network()
    with pytest.raises(RuntimeError, match="'w' cannot be exported.*startup program"):
        export_torch(tmp_path / "m.pt2", ["x"], [net.y], net.exe, net.main)
    net.start()
    inner = net.main._create_block()
    net.main._rollback()
    net.main.global_block().ops[-1]._set_attr("sub_block", inner)
    with pytest.raises(ValueError, match="control flow .'relu'."):
        export_torch(tmp_path / "m.pt2", ["x"], [net.y], net.exe, net.main)
    with scope_guard(Scope()):
        net = Network().start()
        net.x._lod_level = 1
        with pytest.raises(ValueError, match="'x' holds sequences"):
            export_torch(tmp_path / "m.pt2", ["x"], [net.y], net.exe, net.main)
    assert list(tmp_path.iterdir()) == []
