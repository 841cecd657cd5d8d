"""One small network, saved in all formats that can be served."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fleetx import static
from fleetx.static import io, layers
from fleetx.static.export import export_onnx, export_torch


@pytest.fixture(scope="session")
def network():
    """A network of two inputs, one of them ids, with a scope that holds its parameters."""
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    main.random_seed = startup.random_seed = 7
    with static.program_guard(main, startup):
        x = static.data("x", [-1, 4], "float32")
        word = static.data("word", [-1, 1], "int64")
        features = layers.concat([x, layers.reshape(layers.embedding(word, [10, 3]), [-1, 3])], 1)
        hidden = layers.fc(features, 8, act="tanh")
        scores = layers.softmax(layers.fc(hidden, 3))
    executor = static.Executor()
    executor.run(startup, scope=scope)
    return SimpleNamespace(
        main=main, scope=scope, executor=executor, feeds=[x, word], fetches=[scores, hidden]
    )


@pytest.fixture(scope="session")
def folder(network, tmp_path_factory):
    """A folder with the network as Paddle 2 and Paddle 1 save it."""
    root = tmp_path_factory.mktemp("models")
    names = [var.name for var in network.feeds]
    with static.scope_guard(network.scope):
        io.save_inference_model(
            root / "two" / "net",
            network.feeds,
            network.fetches,
            network.executor,
            program=network.main,
        )
        for name, params in (("one", None), ("one_combined", "weights")):
            io.save_inference_dir(
                root / name,
                names,
                network.fetches,
                network.executor,
                network.main,
                params_filename=params,
            )
    return root


def require_export():
    if not hasattr(torch.export.Dim, "AUTO"):
        pytest.skip("programs are exported with PyTorch 2.6 or newer")


@pytest.fixture(scope="session")
def pt2_file(network, folder):
    require_export()
    path = folder / "net.pt2"
    with static.scope_guard(network.scope):
        export_torch(path, network.feeds, network.fetches, network.executor, network.main)
    return path


@pytest.fixture(scope="session")
def onnx_file(network, folder):
    require_export()
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    path = folder / "net.onnx"
    with static.scope_guard(network.scope):
        export_onnx(path, network.feeds, network.fetches, network.executor, network.main)
    return path


@pytest.fixture(scope="session")
def inputs():
    """Five rows."""
    generator = np.random.default_rng(3)
    return {
        "x": generator.normal(size=(5, 4)).astype("float32"),
        "word": generator.integers(0, 10, size=(5, 1)),
    }


@pytest.fixture(scope="session")
def expected(network, inputs):
    """What the network computes for them."""
    return network.executor.run(
        network.main, feed=inputs, fetch_list=network.fetches, scope=network.scope
    )
