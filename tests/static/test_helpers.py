"""Small parts around programs: data, flags, profiler, averages, check of the installation, nets."""

import json

import numpy as np
import pytest

import fleetx.static as static
from fleetx.static import layers, nets
from fleetx.static.graph.input_spec import InputSpec
from fleetx.static.metrics.weighted_average import WeightedAverage
from fleetx.static.run import profiler
from fleetx.static.run.self_check import run_check


def started():
    executor = static.Executor()
    executor.run(static.default_startup_program())
    return executor


def test_input_spec():
    spec = InputSpec([None, 784], "float32", "x")
    assert spec.shape == (-1, 784)
    assert spec == InputSpec([-1, 784], name="x")
    assert spec.batch(8).shape == (8, -1, 784)
    assert spec.unbatch().shape == (-1, 784)
    x = layers.data("x", [3], dtype="int64")
    assert InputSpec.from_tensor(x).dtype == static.VarType.INT64
    assert InputSpec.from_numpy(np.zeros((2, 2)), "n").shape == (2, 2)
    with pytest.raises(ValueError, match="None, -1 or more"):
        InputSpec([-2])
    with pytest.raises(TypeError, match="must be a list"):
        InputSpec(3)


def test_weighted_average():
    with pytest.warns(DeprecationWarning, match="metrics"):
        average = WeightedAverage()
    with pytest.raises(ValueError, match=r"call add\(\) first"):
        average.eval()
    average.add(value=2.0, weight=1)
    average.add(value=4.0, weight=3)
    assert average.eval() == 3.5
    with pytest.raises(ValueError, match="must be a number"):
        average.add("2", 1)


def test_profiler_prints_a_table_and_writes_a_trace(tmp_path, capsys):
    x = layers.data("x", [4])
    out = layers.fc(x, 2)
    executor = started()
    path = tmp_path / "trace.json"
    with profiler.profiler("CPU", sorted_key="total", profile_path=str(path)):
        executor.run(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[out])
        profiler.reset_profiler()
        executor.run(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[out])
    assert "aten::" in capsys.readouterr().out
    assert json.loads(path.read_text())["traceEvents"]
    with pytest.raises(ValueError, match="state of the profiler"):
        profiler.start_profiler("TPU")
    with pytest.raises(ValueError, match="sorted_key"):
        profiler.stop_profiler("size")


def test_check_of_the_installation(capsys):
    run_check()
    assert "FleetX works on CPUPlace" in capsys.readouterr().out


def test_convolution_nets():
    image = layers.data("image", [1, 8, 8])
    pooled = nets.simple_img_conv_pool(image, 4, 3, pool_size=2, pool_stride=2, act="relu")
    assert pooled.shape == (-1, 4, 3, 3)
    group = nets.img_conv_group(
        image,
        conv_num_filter=[4, 6],
        pool_size=2,
        pool_stride=2,
        conv_act="relu",
        conv_with_batchnorm=True,
        conv_batchnorm_drop_rate=[0.3, 0.0],
    )
    assert group.shape == (-1, 6, 4, 4)
    values = started().run(
        feed={"image": np.ones((2, 1, 8, 8), "float32")}, fetch_list=[pooled, group]
    )
    assert [v.shape for v in values] == [(2, 4, 3, 3), (2, 6, 4, 4)]
    with pytest.raises(ValueError, match="3 entries for 2 convolutions"):
        nets.img_conv_group(image, [4, 6], 2, conv_padding=[1, 1, 1])


def test_gated_unit():
    x = layers.data("x", [4])
    out = nets.glu(x)
    a = np.array([[1.0, 2.0, 0.0, 1.0]], "float32")
    (value,) = static.Executor().run(feed={"x": a}, fetch_list=[out])
    np.testing.assert_allclose(value, a[:, :2] / (1 + np.exp(-a[:, 2:])), rtol=1e-6)


def test_attention():
    rng = np.random.default_rng(0)
    feed = {name: rng.random((2, 3, 4), dtype=np.float32) for name in "qkv"}
    q, k, v = (
        layers.data(name, [2, 3, 4], append_batch_size=False, stop_gradient=False) for name in "qkv"
    )
    out = nets.scaled_dot_product_attention(q, k, v)
    heads = nets.scaled_dot_product_attention(q, k, v, num_heads=2, dropout_rate=0.1)
    assert heads.shape == (2, 3, 4)
    (value,) = started().run(feed=feed, fetch_list=[out])
    scores = feed["q"] @ feed["k"].transpose(0, 2, 1) / 2
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(value, weights @ feed["v"], rtol=1e-5)
    with pytest.raises(ValueError, match="multiple of num_heads=3"):
        nets.scaled_dot_product_attention(q, k, v, num_heads=3)


def test_sequences_are_convolved_and_pooled():
    from fleetx.static.readers.lod_tensor import create_lod_tensor

    x = layers.data("x", [4], lod_level=1)
    out = nets.sequence_conv_pool(x, num_filters=5, filter_size=3)
    rows = create_lod_tensor(np.ones((5, 4), "float32"), [[2, 3]], static.CPUPlace())
    (value,) = started().run(feed={"x": rows}, fetch_list=[out])
    assert value.shape == (2, 5)


def test_fetched_numbers_meet_python_numbers_in_double_precision():
    value = layers.fill_constant([1], "float32", 0.1)
    (fetched,) = static.Executor().run(fetch_list=[value])
    number = fetched[0]
    assert isinstance(number, np.float32)
    assert 0 < abs(0.1 - number) == abs(number - 0.1) < 1e-8
    assert 0.5 + number == number + 0.5 == 0.5 + float(np.float32(0.1))
    assert (number - np.float32(0.1)).dtype == np.float32
    assert repr(number) == repr(np.float32(0.1))
    assert "%f" % fetched == "0.100000"  # noqa: UP031 - as scripts print
