"""Predictors of `fluid.core` over saved models."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from fleetx import static
from paddle.fluid.core import (
    AnalysisConfig,
    PaddleBuf,
    PaddleDType,
    PaddleTensor,
    create_paddle_predictor,
)

L = fluid.layers
X = np.arange(8, dtype="float32").reshape(2, 4) / 8
IDS, OFFSETS = np.array([[1], [2], [3]], "int64"), [[0, 1, 3]]


@pytest.fixture
def expected(tmp_path: Path) -> list[Any]:
    """Save a model in a folder, and in two files; return its outputs."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        x = L.data("x", [4])
        ids = L.data("ids", [1], dtype="int64", lod_level=1)
        rows = L.embedding(ids, [10, 3])
        out = L.fc(x, 3, act="softmax") + L.sequence_pool(rows, "sum")
    exe = static.Executor()
    with static.scope_guard(static.Scope()):
        exe.run(startup)
        fluid.io.save_inference_model(str(tmp_path / "a"), ["x", "ids"], [out, rows], exe, main)
        names = {"model_filename": "m", "params_filename": "p"}
        fluid.io.save_inference_model(
            str(tmp_path / "b"), ["x", "ids"], [out, rows], exe, main, **names
        )
        feed = {"x": X, "ids": fluid.create_lod_tensor(IDS, [[1, 2]], fluid.CPUPlace())}
        found = exe.run(main, feed=feed, fetch_list=[out, rows], return_numpy=False)
    return [np.array(value) for value in found]


def test_handles(expected: list[Any], tmp_path: Path) -> None:
    config = AnalysisConfig(str(tmp_path / "b" / "m"), str(tmp_path / "b" / "p"))
    assert config.prog_file().endswith("m")
    assert config.params_file().endswith("p")
    config.disable_gpu()
    config.switch_use_feed_fetch_ops(False)
    with pytest.warns(UserWarning, match="switch_ir_optim has no effect"):
        config.switch_ir_optim(True)
    with pytest.warns(UserWarning, match="enable_memory_optim has no effect"):
        config.enable_memory_optim()
    assert not config.use_gpu()
    assert not config.use_feed_fetch_ops_enabled()
    predictor = create_paddle_predictor(config)
    assert predictor.get_input_names() == ["x", "ids"]
    assert predictor.get_input_tensor_shape()["x"] == [-1, 4]
    with pytest.raises(RuntimeError, match=r"Copy values to the inputs \['x', 'ids'\]"):
        predictor.zero_copy_run()
    x = predictor.get_input_tensor("x")
    x.reshape([2, 4])
    with pytest.raises(ValueError, match=r"'x' was reshaped to \[2, 4\], but .*\[3, 4\]"):
        x.copy_from_cpu(np.zeros((3, 4), "float32"))
    x.copy_from_cpu(X)
    ids = predictor.get_input_tensor("ids")
    ids.copy_from_cpu(IDS)
    ids.set_lod(OFFSETS)
    predictor.zero_copy_run()
    first, second = map(predictor.get_output_tensor, predictor.get_output_names())
    np.testing.assert_allclose(first.copy_to_cpu(), expected[0], rtol=1e-6)
    np.testing.assert_allclose(second.copy_to_cpu(), expected[1], rtol=1e-6)
    assert second.lod() == OFFSETS
    assert second.shape() == [3, 3]
    assert second.type() is PaddleDType.FLOAT32
    with pytest.raises(ValueError, match=r"'y' is not one of the inputs \['x', 'ids'\]"):
        predictor.get_input_tensor("y")


def test_run(expected: list[Any], tmp_path: Path) -> None:
    config = AnalysisConfig(str(tmp_path / "a"))
    assert config.model_dir() == str(tmp_path / "a")
    predictor = create_paddle_predictor(config)
    ids = PaddleTensor(IDS, "ids", OFFSETS)
    first, second = predictor.run([PaddleTensor(X), ids])
    np.testing.assert_allclose(first.as_ndarray(), expected[0], rtol=1e-6)
    assert (second.shape, second.lod) == ([3, 3], OFFSETS)
    np.testing.assert_allclose(second.data.float_data(), expected[1].reshape(-1), rtol=1e-6)
    config.switch_specify_input_names(True)
    again, _ = predictor.clone().run([ids, PaddleTensor(X, "x")])
    np.testing.assert_array_equal(again.as_ndarray(), first.as_ndarray())
    with pytest.raises(ValueError, match=r"takes 2 inputs \['x', 'ids'\], not 1"):
        predictor.run([ids])


def test_values() -> None:
    buffer = PaddleBuf([1, 2])
    assert not buffer.empty()
    buffer.reset(np.array([[3], [4]], "int32"))
    assert (buffer.length(), buffer.int64_data(), buffer.int32_data()) == (8, [3, 4], [3, 4])
    with pytest.raises(TypeError, match="has elements of float32, int64, int32, not bool"):
        PaddleTensor(np.array([True]))
    config = AnalysisConfig()
    config.enable_use_gpu(100, 1)
    with pytest.warns(UserWarning, match="set OMP_NUM_THREADS instead"):
        config.set_cpu_math_library_num_threads(4)
    assert (config.use_gpu(), config.gpu_device_id()) == (True, 1)
    assert config.cpu_math_library_num_threads() == 4
    with pytest.raises(TypeError, match="config must be an AnalysisConfig, not str"):
        create_paddle_predictor("model")


def test_a_setting_without_effect_warns_once() -> None:
    config = AnalysisConfig()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            config.switch_ir_optim(True)
            config.enable_tensorrt_engine(max_batch_size=4)
        config.disable_glog_info()
    assert [str(each.message) for each in caught] == [
        "AnalysisConfig.switch_ir_optim has no effect: it is a setting of Paddle's engines.",
        "AnalysisConfig.enable_tensorrt_engine has no effect: it is a setting of Paddle's engines.",
    ]
    assert caught[0].filename == __file__
