"""Modules and names are where scripts look for them."""

import importlib

import numpy as np
import pytest

import paddle
import paddle.fluid as fluid
from fleetx import static

# What the documents and the most used public programs import or name.
USED = """
fluid.CPUPlace fluid.CUDAPlace fluid.Executor fluid.ParamAttr fluid.Program fluid.BuildStrategy
fluid.ExecutionStrategy fluid.CompiledProgram fluid.ParallelExecutor fluid.DataFeeder
fluid.DatasetFactory fluid.global_scope fluid.scope_guard fluid.device_guard fluid.name_scope
fluid.default_main_program fluid.default_startup_program fluid.program_guard
fluid.unique_name.guard fluid.core.EOFException fluid.core.VarDesc.VarType
fluid.core.get_cuda_device_count fluid.core.is_compiled_with_cuda
fluid.layers.data fluid.layers.fc fluid.layers.embedding fluid.layers.matmul fluid.layers.mean
fluid.layers.cross_entropy fluid.layers.softmax fluid.layers.softmax_with_cross_entropy
fluid.layers.fill_constant_batch_size_like fluid.layers.cast fluid.layers.accuracy
fluid.layers.auc fluid.layers.reshape fluid.layers.concat fluid.layers.reduce_sum
fluid.layers.reduce_mean fluid.layers.read_file fluid.layers.py_reader fluid.layers.elementwise_add
fluid.layers.scale fluid.layers.fill_constant fluid.layers.dropout fluid.layers.expand_as
fluid.layers.pool2d fluid.layers.conv2d fluid.layers.batch_norm fluid.layers.layer_norm
fluid.layers.transpose fluid.layers.stack fluid.layers.gather fluid.layers.equal
fluid.layers.exponential_decay fluid.layers.piecewise_decay fluid.layers.noam_decay
fluid.layers.polynomial_decay fluid.layers.slice fluid.layers.one_hot fluid.layers.sigmoid
fluid.layers.create_parameter fluid.layers.tensor.create_global_var
fluid.layers.control_flow.Switch fluid.layers.sequence_pool fluid.layers.learning_rate_scheduler
fluid.optimizer.SGD fluid.optimizer.Adam fluid.optimizer.Momentum fluid.optimizer.Adagrad
fluid.initializer.Constant fluid.initializer.Uniform fluid.initializer.Normal
fluid.initializer.TruncatedNormal fluid.initializer.NumpyArrayInitializer
fluid.regularizer.L2Decay fluid.clip.GradientClipByGlobalNorm fluid.contrib.mixed_precision.decorate
fluid.io.save_persistables fluid.io.load_persistables fluid.io.load_vars
fluid.io.save_inference_model fluid.io.load_inference_model fluid.io.DataLoader.from_generator
fluid.incubate.data_generator.MultiSlotDataGenerator fluid.metrics.Auc fluid.nets.glu
batch enable_static seed set_device ParamAttr CUDAPlace concat sum cast matmul shape reshape arange
load transpose mean split ones_like cumsum to_tensor static.data static.Executor
static.default_main_program static.default_startup_program static.program_guard static.Program
static.create_global_var static.accuracy static.auc static.global_scope static.InputSpec
nn.Layer nn.Linear nn.Embedding nn.Dropout nn.ReLU nn.CrossEntropyLoss nn.LayerNorm nn.LayerList
nn.functional.softmax nn.functional.cross_entropy nn.initializer.Normal metric.accuracy
optimizer.Momentum optimizer.SGD optimizer.lr.NoamDecay regularizer.L2Decay
io.DataLoader io.DataLoader.from_generator vision.set_image_backend vision.models.resnet50
dataset.flowers.train dataset.mnist.train reader.shuffle reader.xmap_readers
distributed.get_rank distributed.get_world_size utils.unique_name.guard
""".split()  # noqa: SIM905 - reads better than a list


@pytest.mark.parametrize("name", USED)
def test_name_is_there(name):
    value = paddle
    for part in name.split("."):
        value = getattr(value, part)
    assert value is not None


def test_names_are_the_engines_own():
    assert fluid.Program is static.Program
    assert paddle.static.Variable is fluid.framework.Variable is paddle.Tensor is static.Variable
    assert fluid.layers.fc is importlib.import_module("paddle.fluid.layers.nn").fc
    assert fluid.core.VarDesc.VarType.FP32 is paddle.float32


def test_version():
    assert paddle.__version__ == paddle.version.full_version
    fluid.require_version("1.8.0")
    fluid.require_version("1.8.0", "2.0.0")
    with pytest.raises(Exception, match="requires Paddle >= 2.5"):
        fluid.require_version("2.5")
    with pytest.raises(TypeError, match="must be a str"):
        fluid.require_version(2)
    with pytest.raises(ValueError, match="must look like"):
        fluid.require_version("two")


def test_place_of_this_process(monkeypatch):
    assert paddle.distributed.get_rank() == 0
    assert paddle.distributed.get_world_size() == 1
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "a:1,b:2")
    monkeypatch.setenv("PADDLE_CURRENT_ENDPOINT", "b:2")
    monkeypatch.setenv("FLAGS_selected_gpus", "3")
    environment = paddle.distributed.ParallelEnv()
    assert (environment.rank, environment.world_size, environment.nranks) == (1, 2, 2)
    assert environment.trainer_endpoints == ["a:1", "b:2"]
    assert environment.current_endpoint == "b:2"
    assert environment.device_id == environment.dev_id == 3


def test_device(monkeypatch):
    monkeypatch.setattr(paddle.device, "_device", "")
    assert paddle.set_device("cpu") == paddle.CPUPlace()
    assert paddle.get_device() == "cpu"
    with pytest.raises(ValueError, match="'cpu', 'gpu' or 'gpu:N'"):
        paddle.set_device("tpu")


def test_text_helpers():
    compat = paddle.compat
    assert compat.to_text(b"a") == "a"
    assert compat.to_bytes(["a", "b"]) == [b"a", b"b"]
    names = [b"x"]
    assert compat.to_text(names, inplace=True) is names
    assert names == ["x"]
    assert compat.round(2.5) == 3
    assert compat.round(-2.5) == -3
    assert compat.floor_division(7, 2) == 3


def test_data_sets_say_where_their_files_belong(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="mnist"):
        paddle.dataset.mnist.train()
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    assert paddle.dataset.common.md5file(str(path)) == "900150983cd24fb0d6963f7d28e17f72"


def test_seed_makes_runs_repeatable():
    x = paddle.uniform([3])
    exe = paddle.static.Executor()

    def run():
        paddle.seed(5)
        return exe.run(fetch_list=[x])[0]

    np.testing.assert_array_equal(run(), run())
