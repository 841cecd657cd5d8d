"""Arguments are taken as Paddle takes them."""

import warnings

import numpy as np
import pytest

import paddle
import paddle.fluid as fluid


def test_batch_dimension_of_the_three_kinds_of_data():
    assert fluid.layers.data("a", shape=[32]).shape == (-1, 32)
    assert fluid.layers.data("b", shape=[-1, 32]).shape == (-1, 32)
    assert fluid.layers.data("c", shape=[4, 32], append_batch_size=False).shape == (4, 32)
    assert fluid.data("d", shape=[None, 32]).shape == (-1, 32)
    assert paddle.static.data("e", [None, 32], "int64", 1).lod_level == 1
    assert paddle.static.data("f", [2]).dtype == paddle.float32
    with pytest.raises(TypeError, match="'name' in data"):
        fluid.data(3, [1])
    with pytest.raises(TypeError, match="'shape' in data"):
        fluid.layers.data("g", shape=3)


def test_unknown_feeds_are_a_warning():
    x = fluid.layers.data("x", shape=[2])
    y = fluid.layers.scale(x, 2.0)
    ones = np.ones((1, 2), "float32")
    with pytest.warns(UserWarning, match="value for 'z'"):
        (value,) = fluid.Executor().run(feed={"x": ones, "z": ones}, fetch_list=[y])
    np.testing.assert_array_equal(value, 2 * ones)


def test_feeds_are_compared_with_what_was_declared():
    """`fluid.data` compares before the run; `layers.data` only where the run fails."""
    checked = fluid.data("checked", shape=[None, 2])
    loose = fluid.layers.data("loose", shape=[2, 2])
    doubled = fluid.layers.scale(checked, 2.0), fluid.layers.scale(loose, 2.0)
    exe = fluid.Executor()
    with pytest.raises(ValueError, match="'checked'.*\\(-1, 2\\).*\\[1, 3\\]"):
        exe.run(feed={"checked": np.ones((1, 3), "float32")}, fetch_list=[doubled[0]])
    with pytest.raises(ValueError, match="'checked' must have data type 'float32'"):
        exe.run(feed={"checked": np.ones((1, 2))}, fetch_list=[doubled[0]])
    (value,) = exe.run(feed={"loose": np.ones((2, 2), "float32")}, fetch_list=[doubled[1]])
    assert value.shape == (2, 2)
    out = fluid.layers.fc(fluid.layers.data("wrong", shape=[5]), size=2)
    exe.run(fluid.default_startup_program())
    with pytest.raises(ValueError, match="'wrong'.*\\(-1, 5\\).*\\[1, 4\\]"):
        exe.run(feed={"wrong": np.ones((1, 4), "float32")}, fetch_list=[out])


def test_static_nn_takes_the_names_of_2_x():
    x = paddle.static.data("x", [None, 4])
    out = paddle.static.nn.fc(
        x, size=3, weight_attr=paddle.ParamAttr(name="w"), bias_attr=False, activation="relu"
    )
    program = paddle.static.default_main_program()
    assert [op.type for op in program.global_block().ops] == ["mul", "relu"]
    assert program.all_parameters()[0].name == "w"
    assert out.shape == (-1, 3)
    words = paddle.static.data("words", [None, 7], "int64")
    assert paddle.static.nn.embedding(words, [10, 5]).shape == (-1, 7, 5)
    with pytest.raises(ValueError, match="data_format 'NCHW'"):
        paddle.static.nn.prelu(x, "all", data_format="NHWC")


def test_switch_of_names_returns_a_pair():
    old, checker = fluid.unique_name.switch()
    assert fluid.unique_name.generate("fc") == "fc_0"
    assert fluid.unique_name.switch(old, checker)[1] is None


def test_flags_are_kept():
    fluid.set_flags({"FLAGS_eager_delete_tensor_gb": 1.5})
    assert fluid.get_flags("FLAGS_eager_delete_tensor_gb") == {"FLAGS_eager_delete_tensor_gb": 1.5}
    with pytest.raises(ValueError, match="never set"):
        fluid.get_flags(["FLAGS_no_such_flag"])
    with pytest.raises(ValueError, match="it is private"):
        fluid.get_flags("FLAGS_use_mkldnn")
    with pytest.raises(TypeError, match="must be a dict"):
        fluid.set_flags("FLAGS_benchmark")
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    try:
        assert paddle.get_flags("FLAGS_check_nan_inf") == {"FLAGS_check_nan_inf": True}
    finally:
        paddle.set_flags({"FLAGS_check_nan_inf": False})


def test_notes_on_variables_places_and_types_of_global_variables():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        step = fluid.layers.create_global_var([1], 2.0, "float32")
        step._set_info("owner", "script")
        assert (step._get_info("owner"), step._get_info("other")) == ("script", None)
        with pytest.raises(ValueError, match="real variables, but dtype is 'complex128'"):
            fluid.layers.create_global_var([1], 2.0, "complex128")
        places = fluid.layers.device.get_places()
        assert places.type == fluid.core.VarDesc.VarType.PLACE_LIST


def test_details_of_programs_follow_their_text():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        fluid.layers.fc(fluid.data("x", [2, 3]), size=3)
    text, details = main.to_string(True), main.to_string(True, with_details=True)
    assert details.startswith(text)
    assert "optimize_attr" in details[len(text) :]


def test_the_seed_of_the_default_programs():
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        paddle.framework.random._manual_program_seed(11)
        assert paddle.static.default_main_program().random_seed == 11
        assert paddle.static.default_startup_program().random_seed == 11


def test_lists_of_a_known_type_become_tensors():
    make, double = fluid.executor._as_lodtensor, fluid.core.VarDesc.VarType.FP64
    for data in ([1, 2], (1, 2)):
        assert make(data, fluid.CPUPlace(), double)._dtype() == double
    with pytest.raises(TypeError, match="the list cannot be converted"):
        make([[1], [1, 2]], fluid.CPUPlace(), double)
    with pytest.raises(TypeError, match="not a dict"):
        make({"a": 1}, fluid.CPUPlace(), double)
    with pytest.raises(RuntimeError, match="different lengths"):
        make([1, 2], fluid.CPUPlace())


def test_memory_passes_are_names_only():
    with pytest.warns(DeprecationWarning, match="does nothing"):
        fluid.memory_optimize(fluid.default_main_program())
    with pytest.warns(DeprecationWarning, match="does nothing"):
        fluid.release_memory(fluid.default_main_program())


def test_gradients_by_both_names():
    x = fluid.data("x", [2, 2])
    x.stop_gradient = False
    y = fluid.layers.reduce_sum(fluid.layers.square(x))
    (by_list,) = fluid.gradients([y], [x])
    alone = fluid.backward.calc_gradient(y, x)
    values = fluid.Executor().run(
        feed={"x": np.full((2, 2), 3, "float32")}, fetch_list=[by_list, alone]
    )
    for value in values:
        np.testing.assert_allclose(value, np.full((2, 2), 6))


def test_deprecated_marks_functions():
    @paddle.utils.deprecated(update_to="paddle.new", since="2.0.0")
    def old():
        return 1

    with pytest.warns(DeprecationWarning, match=r"use paddle\.new"):
        assert old() == 1
    with pytest.raises(ImportError, match="pip install no_such_package"):
        paddle.utils.try_import("no_such_package")
    assert paddle.utils.try_import("json").dumps(1) == "1"


def test_parameters_are_saved_and_loaded_by_name(tmp_path):
    path = str(tmp_path / "model.pdparams")
    paddle.save({"w": np.arange(3)}, path)
    np.testing.assert_array_equal(paddle.load(path)["w"], np.arange(3))


def test_layers_as_classes_on_program_variables():
    class Net(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.body = paddle.nn.Sequential(
                paddle.nn.Linear(4, 8), paddle.nn.ReLU(), paddle.nn.Linear(8, 2)
            )

        def forward(self, x):
            return self.body(x)

    x = paddle.static.data("x", [None, 4])
    label = paddle.static.data("label", [None, 1], "int64")
    loss = paddle.nn.CrossEntropyLoss()(Net()(x), label)
    scheduler = paddle.optimizer.lr.StepDecay(0.5, step_size=1)
    paddle.optimizer.SGD(scheduler).minimize(loss)
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    feed = {"x": np.eye(4, dtype="float32"), "label": np.array([[0], [1], [0], [1]])}
    losses = []
    for _ in range(5):
        losses.append(exe.run(feed=feed, fetch_list=[loss])[0].item())
        scheduler.step()
    assert losses[-1] < losses[0]


def test_nothing_is_printed_or_warned_by_importing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import paddle.fluid.layers  # noqa: F401


def test_a_variable_is_read_from_its_file(tmp_path):
    x = fluid.layers.create_parameter([2, 3], "float32", name="x")
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    fluid.io.save_vars(exe, str(tmp_path), vars=[x])
    program = fluid.Program()
    with fluid.program_guard(program):
        copy = fluid.layers.create_tensor(dtype="float32")
        fluid.layers.load(copy, file_path=str(tmp_path / "x"))
    (value,) = exe.run(program, fetch_list=[copy])
    np.testing.assert_array_equal(value, np.asarray(x.get_value()))


def test_columns_of_several_matrices():
    x, y = (fluid.data(name, [None, 3]) for name in "xy")
    joined = fluid.contrib.layers.partial_concat([x, y], start_index=0, length=2)
    added = fluid.contrib.layers.partial_sum([x, y], start_index=1)
    a = np.arange(6, dtype="float32").reshape(2, 3)
    values = fluid.Executor().run(feed={"x": a, "y": a}, fetch_list=[joined, added])
    np.testing.assert_array_equal(values[0], np.concatenate([a[:, :2]] * 2, 1))
    np.testing.assert_array_equal(values[1], 2 * a[:, 1:])


def test_momentum_of_contrib_decays_in_its_op():
    from paddle.fluid.contrib.optimizer import Momentum

    x = fluid.data("x", [None, 2])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1, bias_attr=False))
    decay = fluid.regularizer.L2Decay(0.25)
    (op,), _ = Momentum(0.1, 0.9, regularization=decay, rescale_grad=0.5).minimize(loss)
    assert op.type == "momentum"
    assert op.attr("regularization_method") == "l2_decay"
    assert (op.attr("regularization_coeff"), op.attr("rescale_grad")) == (0.25, 0.5)


def test_the_loss_scale_by_hand():
    from paddle.fluid.contrib.mixed_precision import amp_nn

    x = fluid.data("x", [2])
    state = {
        name: fluid.layers.create_global_var([1], value, kind, persistable=True, name=name)
        for name, value, kind in (
            ("scale", 8.0, "float32"),
            ("good", 0, "int32"),
            ("bad", 0, "int32"),
        )
    }
    grads, found = amp_nn.check_finite_and_unscale([x], state["scale"])
    amp_nn.update_loss_scaling(grads, found, *state.values(), 2, 1, 2.0, 0.5)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    seen = []
    for values in ([8, 16], [8, 16], [8, np.inf]):
        feed = {"x": np.array(values, "float32")}
        *out, scale = exe.run(feed=feed, fetch_list=[grads[0], found, state["scale"]])
        seen.append((out[0].tolist(), bool(out[1]), float(scale)))
    assert seen == [([1, 2], False, 8), ([1, 2], False, 16), ([0, 0], True, 8)]
