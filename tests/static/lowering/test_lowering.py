"""What a program becomes: one backward call, fused neighbours, grouped updates, early freeing,
compilation."""

from __future__ import annotations

import numpy as np
import pytest
from small_networks import batch, mlp, needs_compiler, started, value

from fleetx import static
from fleetx.static import layers
from fleetx.static.lowering import plan
from fleetx.static.run.executor import _Prepared


def source_of(exe: static.Executor) -> str:
    (prepared,) = static.default_main_program().binding.steps[exe].values()
    assert isinstance(prepared, _Prepared)
    return prepared.step(False).source


def test_one_backward_call_and_one_update_call() -> None:
    _, _, loss = mlp()
    static.optimizer.Momentum(0.1, 0.9).minimize(loss)
    exe = started()
    exe.run(feed=batch(), fetch_list=[loss])
    source = source_of(exe)
    assert source.count("autograd_grad(") == 1
    calls = [line for line in source.split("set_grad(False)")[1].splitlines() if "(((" in line]
    assert len(calls) == 1, source


def test_unneeded_ops_do_not_run() -> None:
    prediction, _, _ = mlp()
    exe = started()
    exe.run(feed={"x": batch()["x"]}, fetch_list=[prediction])
    assert source_of(exe).count("= f") == 4  # addmm, tanh, addmm, softmax


def test_fused_neighbours_keep_values_that_are_fetched() -> None:
    prediction, cost, loss = mlp()
    exe = started()
    fused = exe.run(feed=batch(), fetch_list=[loss])[0]
    p, c, apart = exe.run(feed=batch(), fetch_list=[prediction, cost, loss])
    np.testing.assert_allclose(fused, apart, rtol=1e-6)
    np.testing.assert_allclose(c.mean(), apart, rtol=1e-6)
    np.testing.assert_allclose(-np.log(np.take_along_axis(p, batch()["y"], 1)), c, rtol=1e-5)


def test_ignored_labels_count_in_the_mean() -> None:
    _, cost, loss = mlp()
    feed = batch()
    feed["y"][:3] = -100
    static.append_backward(loss)
    exe = started()
    (fused,) = exe.run(feed=feed, fetch_list=[loss])
    assert (exe.run(feed=feed, fetch_list=[cost])[0][:3] == 0).all()
    np.testing.assert_allclose(fused, exe.run(feed=feed, fetch_list=[cost])[0].mean(), rtol=1e-6)


def test_grouped_updates_equal_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, loss = mlp()
    static.optimizer.Momentum(0.1, 0.9, regularization=static.regularizer.L2Decay(0.01)).minimize(
        loss
    )
    results = []
    for grouped in (True, False):
        if not grouped:
            monkeypatch.setattr(plan, "group_updates", lambda sequence, alone: sequence)
        exe = static.Executor()
        with static.scope_guard(static.Scope()):
            import torch

            torch.manual_seed(3)
            exe.run(static.default_startup_program())
            for step in range(3):
                exe.run(feed=batch(seed=step), fetch_list=[loss])
            results.append({n: value(n) for n in ("fc_0.w_0", "fc_1.b_0")})
    for name, array in results[0].items():
        np.testing.assert_allclose(array, results[1][name], rtol=1e-6, atol=1e-8)


def test_locals_are_freed_after_their_last_use() -> None:
    prediction, _, _ = mlp()
    exe = started()
    exe.run(feed={"x": batch()["x"]}, fetch_list=[prediction])
    assert "; del v" in source_of(exe)


@pytest.mark.slow
@needs_compiler
def test_compiled_steps_train_alike() -> None:
    _, _, loss = mlp()
    static.optimizer.Adam(0.01).minimize(loss)
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    compiled = static.CompiledProgram(static.default_main_program(), strategy)
    histories = []
    for program in (static.default_main_program(), compiled):
        import torch

        exe = static.Executor()
        with static.scope_guard(static.Scope()):
            torch.manual_seed(3)
            exe.run(static.default_startup_program())
            histories.append(
                [
                    float(exe.run(program, feed=batch(seed=i), fetch_list=[loss])[0])
                    for i in range(4)
                ]
            )
    np.testing.assert_allclose(histories[0], histories[1], rtol=1e-5)


@pytest.mark.slow
def test_a_compiled_program_may_make_a_persistable_variable() -> None:
    x = static.data("x", [2, 3])
    state = layers.data("state", shape=[2, 3], append_batch_size=False)
    state.persistable = True
    total = layers.elementwise_add(x, state)
    layers.assign(total, state)
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    compiled = static.CompiledProgram(static.default_main_program(), strategy)
    exe, ones = static.Executor(), np.ones((2, 3), "float32")
    feed = {"x": ones, "state": ones}
    for _ in range(2):
        np.testing.assert_array_equal(exe.run(compiled, feed, [total])[0], 2 * ones)
    np.testing.assert_array_equal(static.global_scope().find_var("state").value, 2 * ones)


@pytest.mark.slow
def test_a_program_that_cannot_be_compiled_is_refused() -> None:
    x = layers.data("x", shape=[3], dtype="float32")
    limit = layers.fill_constant([1], "int64", 3)
    i = layers.fill_constant([1], "int64", 0)
    total = layers.fill_constant([1], "float32", 0.0)
    condition = layers.less_than(i, limit)
    loop = layers.While(condition)
    with loop.block():
        layers.assign(layers.elementwise_add(total, layers.reduce_sum(x)), total)
        layers.increment(i)
        layers.less_than(i, limit, cond=condition)
    strategy = static.BuildStrategy()
    strategy.enable_auto_fusion = True
    compiled = static.CompiledProgram(static.default_main_program(), strategy)
    with pytest.raises(RuntimeError, match="enable_auto_fusion.*switch it off"):
        static.Executor().run(compiled, feed={"x": np.ones((1, 3), np.float32)}, fetch_list=[total])


def test_gradients_half_way_through_an_overwritten_value_are_refused() -> None:
    x = static.data("x", [4, 2, 3, 3])
    hidden = layers.conv2d(x, 2, 1, param_attr="filter")
    loss = layers.mean(layers.sigmoid(layers.inplace_abn(hidden, act="leaky_relu")))
    static.append_backward(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": np.random.default_rng(0).normal(size=(4, 2, 3, 3)).astype("float32")}
    assert np.abs(exe.run(feed=feed, fetch_list=["filter@GRAD"])[0]).sum() > 0
    with pytest.raises(ValueError, match="'inplace_abn' needs .* from before the op"):
        exe.run(feed=feed, fetch_list=[hidden.grad_name])
