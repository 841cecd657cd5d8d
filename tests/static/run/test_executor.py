"""Running programs: feeds, fetches, scopes, errors."""

from __future__ import annotations

import gc
import warnings
import weakref

import numpy as np
import pytest
from small_networks import batch, mlp, started, value

from fleetx import static
from fleetx.static import layers


def test_training_lowers_the_loss() -> None:
    _, _, loss = mlp()
    static.optimizer.SGD(0.5).minimize(loss)
    exe = started()
    losses = [float(exe.run(feed=batch(), fetch_list=[loss])[0]) for _ in range(30)]
    assert losses[-1] < losses[0] * 0.8


def test_a_loss_prints_with_percent_f() -> None:
    _, _, loss = mlp()
    exe = started()
    (array,) = exe.run(feed=batch(), fetch_list=[loss.name])
    assert array.shape == (1,)
    assert f"{float(array):.6f}" == "%f" % array  # noqa: UP031
    assert "%d" % exe.run(feed=batch(), fetch_list=[loss])[0] == "1"  # noqa: UP031


def test_missing_feed_names_the_variable() -> None:
    _, _, loss = mlp()
    exe = started()
    with pytest.raises(ValueError, match="'y' is needed"):
        exe.run(feed={"x": batch()["x"]}, fetch_list=[loss])


def test_data_that_nobody_needs_need_not_be_fed() -> None:
    prediction, _, _ = mlp()
    (p,) = started().run(feed={"x": batch()["x"]}, fetch_list=[prediction])
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-5)


def test_unknown_feed_is_an_error_or_a_warning() -> None:
    _, _, loss = mlp()
    exe = started()
    feed = {**batch(), "z": np.zeros(1, np.float32)}
    with pytest.raises(ValueError, match="'z'.*no variable of that name"):
        exe.run(feed=feed, fetch_list=[loss])
    lenient = static.Executor(unknown_feed="warn")
    with pytest.warns(UserWarning, match="value for 'z'"):
        lenient.run(feed=feed, fetch_list=[loss])


def test_wrong_shape_and_type_name_the_variable() -> None:
    _, _, loss = mlp()
    exe = started()
    good = batch()
    with pytest.raises(ValueError, match="'x'.*\\(-1, 8\\).*\\[6, 9\\]"):
        exe.run(feed={**good, "x": np.zeros((6, 9), np.float32)}, fetch_list=[loss])
    with pytest.raises(ValueError, match="'y' must have data type 'int64', not 'float32'"):
        exe.run(feed={**good, "y": good["y"].astype(np.float32)}, fetch_list=[loss])
    with pytest.raises(TypeError, match="'y'.*set"):
        exe.run(feed={**good, "y": {1}}, fetch_list=[loss])


def test_ragged_rows_are_refused_with_advice() -> None:
    x = layers.data("x", shape=[3], dtype="float32")
    out = layers.scale(x, 2.0)
    with pytest.raises(TypeError, match="'x'"):
        static.Executor().run(feed={"x": [[1.0, 2.0], [3.0]]}, fetch_list=[out])


def test_lists_numbers_and_odd_strides_are_accepted() -> None:
    x = layers.data("x", shape=[3], dtype="float32")
    out = layers.scale(x, 2.0)
    exe = static.Executor()
    (a,) = exe.run(feed={"x": [[1, 2, 3]]}, fetch_list=[out])
    np.testing.assert_allclose(a, [[2, 4, 6]])
    backwards = np.arange(6, dtype=np.float32).reshape(2, 3)[::-1]
    (b,) = exe.run(feed={"x": backwards}, fetch_list=[out])
    np.testing.assert_allclose(b, backwards * 2)
    frozen = np.ones((1, 3), np.float32)
    frozen.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exe.run(feed={"x": frozen}, fetch_list=[out])


def test_unknown_fetch_is_named() -> None:
    mlp()
    with pytest.raises(ValueError, match="'nothing'"):
        started().run(feed=batch(), fetch_list=["nothing"])
    with pytest.raises(TypeError, match="fetch_list"):
        started().run(feed=batch(), fetch_list=[3])


def test_without_startup_the_error_says_so() -> None:
    _, _, loss = mlp()
    with pytest.raises(static.ExecutionError, match="run the startup program"):
        static.Executor().run(feed=batch(), fetch_list=[loss])


def test_a_failing_op_is_named_with_its_variables() -> None:
    x = layers.data("x", shape=[-1, 3], dtype="float32", append_batch_size=False)
    y = layers.data("y", shape=[-1, 3], dtype="float32", append_batch_size=False)
    out = layers.elementwise_add(x, y)
    feed = {"x": np.ones((2, 3), np.float32), "y": np.ones((4, 3), np.float32)}
    with pytest.raises(static.ExecutionError, match="'elementwise_add' \\(x, y -> .*\\) failed"):
        static.Executor().run(feed=feed, fetch_list=[out])


def test_scopes_hold_parameters_apart() -> None:
    _, _, loss = mlp()
    static.optimizer.SGD(0.5).minimize(loss)
    exe = static.Executor()
    one, two = static.Scope(), static.Scope()
    for scope in (one, two):
        exe.run(static.default_startup_program(), scope=scope)
    before = np.array(two.find_var("fc_0.w_0").get_tensor())  # type: ignore[union-attr]
    exe.run(feed=batch(), fetch_list=[loss], scope=one)
    after = np.array(two.find_var("fc_0.w_0").get_tensor())  # type: ignore[union-attr]
    np.testing.assert_array_equal(before, after)
    assert static.global_scope().find_var("fc_0.w_0") is None


def test_fetched_arrays_do_not_change_later() -> None:
    _, _, loss = mlp()
    static.optimizer.SGD(0.5).minimize(loss)
    exe = started()
    (weights,) = exe.run(feed=batch(), fetch_list=["fc_0.w_0"])
    kept = weights.copy()
    exe.run(feed=batch(), fetch_list=[loss])
    np.testing.assert_array_equal(weights, kept)
    assert not np.array_equal(value("fc_0.w_0"), kept)


def test_setting_a_parameter_through_the_scope_takes_effect() -> None:
    prediction, _, _ = mlp()
    exe = started()
    for name in ("fc_1.w_0", "fc_1.b_0"):
        tensor = static.global_scope().find_var(name).get_tensor()  # type: ignore[union-attr]
        tensor.set(np.zeros(tensor.shape(), np.float32), static.CPUPlace())
    (p,) = exe.run(feed={"x": batch()["x"]}, fetch_list=[prediction])
    np.testing.assert_allclose(p, 1 / 3, rtol=1e-6)


def test_a_changed_program_is_lowered_anew() -> None:
    x = layers.data("x", shape=[2], dtype="float32")
    out = layers.scale(x, 2.0)
    exe = static.Executor()
    feed = {"x": np.ones((1, 2), np.float32)}
    assert exe.run(feed=feed, fetch_list=[out])[0][0, 0] == 2
    out.op._set_attr("scale", 5.0)
    assert exe.run(feed=feed, fetch_list=[out])[0][0, 0] == 5


def test_programs_are_freed_with_their_steps() -> None:
    exe = static.Executor()
    with static.program_guard(static.Program(), static.Program()):
        out = layers.scale(layers.data("x", shape=[2], dtype="float32"), 2.0)
        exe.run(feed={"x": np.ones((1, 2), np.float32)}, fetch_list=[out])
        program = weakref.ref(static.default_main_program())
        del out
    gc.collect()
    assert program() is None


def test_different_batch_sizes_run_without_lowering_again() -> None:
    _, _, loss = mlp()
    exe = started()
    main = static.default_main_program()
    for size in (1, 4, 7):
        exe.run(feed=batch(size), fetch_list=[loss])
    assert len(main.binding.steps[exe]) == 1


def test_gradients_off_outside_stays_off() -> None:
    import torch

    _, _, loss = mlp()
    static.optimizer.SGD(0.5).minimize(loss)
    exe = started()
    with torch.no_grad():
        exe.run(feed=batch(), fetch_list=[loss])
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_closed_executor_refuses() -> None:
    exe = static.Executor()
    exe.close()
    with pytest.raises(RuntimeError, match="closed"):
        exe.run()


def test_cuda_place_without_cuda_runs_on_the_cpu_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    from fleetx.static.run import place

    if torch.cuda.is_available():
        assert static.CUDAPlace(0).device().type == "cuda"
        return
    monkeypatch.setattr(place, "_warned_without_cuda", False)
    x = layers.data("x", shape=[2], dtype="float32")
    out = layers.scale(x, 2.0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            exe = static.Executor(static.CUDAPlace(0))
            exe.run(feed={"x": np.ones((1, 2), np.float32)}, fetch_list=[out])
    assert len([w for w in seen if "no CUDA device" in str(w.message)]) == 1


def test_compiled_program_and_parallel_executor_are_the_same_thing() -> None:
    _, _, loss = mlp()
    exe = started()
    (plain,) = exe.run(feed=batch(), fetch_list=[loss])
    compiled = static.CompiledProgram(static.default_main_program()).with_data_parallel(
        loss_name=loss.name, build_strategy=static.BuildStrategy()
    )
    (second,) = exe.run(compiled, feed=batch(), fetch_list=[loss])
    parallel = static.ParallelExecutor(use_cuda=False, loss_name=loss.name)
    (third,) = parallel.run([loss.name], feed=batch())
    assert plain == second == third


def test_build_strategy_refuses_unknown_fields() -> None:
    strategy = static.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'fuse_everything'.*enable_auto_fusion"):
        strategy.fuse_everything = True  # type: ignore[attr-defined]


def test_sparse_look_ups_train_as_dense_ones() -> None:
    import torch

    results = []
    for is_sparse in (False, True):
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup), static.unique_name.guard():
            words = [layers.data(n, shape=[1], dtype="int64") for n in ("a", "b")]
            rows = [
                layers.embedding(
                    w, size=[20, 4], is_sparse=is_sparse, padding_idx=3, param_attr="table"
                )
                for w in words
            ]
            loss = layers.mean(layers.square(layers.fc(layers.concat(rows, axis=1), 1)))
            static.optimizer.Momentum(0.1, 0.9).minimize(loss)
        exe = static.Executor()
        with static.scope_guard(static.Scope()):
            torch.manual_seed(5)
            exe.run(startup)
            rng = np.random.default_rng(2)
            for _ in range(4):
                feed = {n: rng.integers(0, 20, (8, 1)) for n in ("a", "b")}
                exe.run(main, feed=feed, fetch_list=[loss])
            results.append(value("table"))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-7)
