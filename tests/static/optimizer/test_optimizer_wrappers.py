"""Averages of parameters, Lookahead, decoupled decay, Recompute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import small_networks as nets

from fleetx import static
from fleetx.static import layers, optimizer

NAME = "fc_0.w_0"


def history(steps: int = 6, *, after: Any = None) -> tuple[Any, Any, list[Any]]:
    """Train for some steps; return (executor, what `after` made, the weights after each step)."""
    *_, loss = nets.mlp()
    optimizer.SGD(0.5).minimize(loss)
    made = after() if after is not None else None
    exe = nets.started()
    seen = []
    for step in range(steps):
        exe.run(feed=nets.batch(seed=step), fetch_list=[loss])
        seen.append(nets.value(NAME))
    return exe, made, seen


# -- ExponentialMovingAverage ----------------------------------------------------------------------
def moving_average(**settings: Any) -> Any:
    ema = optimizer.ExponentialMovingAverage(**settings)
    ema.update()
    return ema


def test_moving_average_is_applied_and_taken_out() -> None:
    exe, ema, seen = history(after=lambda: moving_average(decay=0.9))
    expected = np.zeros_like(seen[0])
    for value in seen:
        expected = 0.9 * expected + 0.1 * value
    expected /= 1 - 0.9 ** len(seen)
    for _ in range(2):  # applying it changes nothing that later steps see
        with ema.apply(exe):
            np.testing.assert_allclose(nets.value(NAME), expected, rtol=1e-5)
        np.testing.assert_array_equal(nets.value(NAME), seen[-1])


def test_moving_average_comes_out_after_an_error() -> None:
    exe, ema, seen = history(after=lambda: moving_average(decay=0.9))
    with pytest.raises(KeyError), ema.apply(exe):
        raise KeyError("evaluation failed")
    np.testing.assert_array_equal(nets.value(NAME), seen[-1])


def test_moving_average_may_stay() -> None:
    exe, ema, seen = history(after=lambda: moving_average(decay=0.9))
    with ema.apply(exe, need_restore=False):
        inside = nets.value(NAME)
    np.testing.assert_array_equal(nets.value(NAME), inside)
    ema.restore(exe)
    np.testing.assert_array_equal(nets.value(NAME), seen[-1])


def test_moving_average_starts_with_a_smaller_decay() -> None:
    def after() -> Any:
        steps = layers.autoincreased_step_counter(counter_name="steps", begin=1)
        return moving_average(decay=0.9, thres_steps=steps)

    history(steps=3, after=after)
    assert nets.value("scheduled_ema_decay_rate").item() == pytest.approx(4 / 13)


def test_moving_average_leaves_out_parameters() -> None:
    x = layers.data("x", shape=[2], dtype="float32")
    attr = static.ParamAttr(do_model_average=False)
    layers.fc(x, 2, param_attr=attr)
    ema = optimizer.ExponentialMovingAverage(0.9)
    assert list(ema._ema_vars) == ["fc_0.b_0"]


# -- ModelAverage ----------------------------------------------------------------------------------
def test_model_average_is_the_mean_of_the_window() -> None:
    def after() -> Any:
        return optimizer.ModelAverage(0.5, min_average_window=2, max_average_window=100)

    exe, average, seen = history(steps=6, after=after)
    # Windows close after steps 2, 4 and 7: the closed one holds 3 and 4, the open one 5 and 6.
    with average.apply(exe):
        np.testing.assert_allclose(nets.value(NAME), np.mean(seen[2:6], axis=0), rtol=1e-5)
    np.testing.assert_array_equal(nets.value(NAME), seen[-1])
    with average.apply(exe, need_restore=False):
        pass
    average.restore(exe)
    np.testing.assert_array_equal(nets.value(NAME), seen[-1])


# -- Lookahead -------------------------------------------------------------------------------------
def lookahead_weights(k: int) -> tuple[list[Any], Any]:
    *_, loss = nets.mlp()
    ops, _ = optimizer.LookaheadOptimizer(optimizer.SGD(0.5), alpha=0.25, k=k).minimize(loss)
    assert {op.type for op in ops} == {"sgd"}
    exe = nets.started()
    seen = [nets.value(NAME)]
    for step in range(4):
        exe.run(feed=nets.batch(seed=step), fetch_list=[loss])
        seen.append(nets.value(NAME))
    return seen, nets.value(f"{NAME}@SLOW")


def test_lookahead_goes_back_towards_the_slow_weights() -> None:
    seen, slow = lookahead_weights(k=2)
    np.testing.assert_array_equal(seen[4], slow)
    static_steps = static.global_scope().find_var("lookahead_step")
    assert static_steps is not None
    assert static_steps.get_tensor().numpy().item() == 4


def test_lookahead_against_its_formula() -> None:
    with static.program_guard(static.Program(), static.Program()), static.unique_name.guard():
        *_, loss = nets.mlp()
        optimizer.LookaheadOptimizer(optimizer.SGD(0.5), alpha=0.25, k=2).minimize(loss)
        exe = nets.started()
        start = {p.name: nets.value(p.name) for p in loss.block.all_parameters()}
        for step in range(2):
            exe.run(feed=nets.batch(seed=step), fetch_list=[loss])
        ahead = nets.value(NAME)
    with static.program_guard(static.Program(), static.Program()), static.unique_name.guard():
        *_, loss = nets.mlp()
        optimizer.SGD(0.5).minimize(loss)
        exe = nets.started()
        for name, value in start.items():
            static.global_scope().var(name).get_tensor().set(value)
        for step in range(2):
            exe.run(feed=nets.batch(seed=step), fetch_list=[loss])
        fast = nets.value(NAME)
    np.testing.assert_allclose(ahead, start[NAME] + 0.25 * (fast - start[NAME]), rtol=1e-5)


def test_lookahead_settings_are_checked() -> None:
    sgd = optimizer.SGD(0.1)
    with pytest.raises(ValueError, match="inner_optimizer"):
        optimizer.LookaheadOptimizer(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"alpha .* must be in \[0, 1\], not 2"):
        optimizer.LookaheadOptimizer(sgd, alpha=2)
    with pytest.raises(ValueError, match="k .* must be a positive integer, not 0.5"):
        optimizer.LookaheadOptimizer(sgd, k=0.5)  # type: ignore[arg-type]


# -- decoupled weight decay ------------------------------------------------------------------------
def test_decoupled_decay_shrinks_before_the_update() -> None:
    decayed = optimizer.extend_with_decoupled_weight_decay(optimizer.SGD)
    *_, loss = nets.mlp()
    made: Any = decayed(
        weight_decay=0.1,
        apply_decay_param_fun=lambda name: name.startswith("fc_0"),
        learning_rate=0.0,
    )
    ops, pairs = made.minimize(loss)
    assert len(ops) == len(pairs) == 4
    exe = nets.started()
    before = {p.name: nets.value(p.name) for p, _ in pairs}
    exe.run(feed=nets.batch(), fetch_list=[loss])
    np.testing.assert_allclose(nets.value(NAME), 0.9 * before[NAME], rtol=1e-6)
    np.testing.assert_array_equal(nets.value("fc_1.w_0"), before["fc_1.w_0"])
    assert str(made) == "Weight Decay, params: fc_0.b_0,fc_0.w_0"


def test_decoupled_decay_of_zero_appends_nothing() -> None:
    *_, loss = nets.mlp()
    made: Any = optimizer.extend_with_decoupled_weight_decay(optimizer.SGD)
    made(weight_decay=0.0, learning_rate=0.1).minimize(loss)
    assert "assign" not in [op.type for op in loss.block.ops]


def test_decoupled_decay_checks_its_arguments() -> None:
    with pytest.raises(TypeError, match="takes an optimizer class, not <class 'int'>"):
        optimizer.extend_with_decoupled_weight_decay(int)  # type: ignore[arg-type]
    made: Any = optimizer.extend_with_decoupled_weight_decay(optimizer.SGD)
    with pytest.raises(TypeError, match="must be a float or a Variable, not str"):
        made(weight_decay="0.1", learning_rate=0.1)


# -- Recompute -------------------------------------------------------------------------------------
def test_recompute_without_checkpoints_is_the_inner_optimizer() -> None:
    *_, loss = nets.mlp()
    made = optimizer.RecomputeOptimizer(optimizer.Momentum(0.1, 0.9))
    with pytest.raises(ValueError, match="call set_checkpoints before minimize"):
        made.minimize(loss)
    with pytest.raises(TypeError, match="list of Variables or names, not str"):
        made._set_checkpoints("fc_0.tmp_0")
    made._set_checkpoints([])
    ops, pairs = made.minimize(loss)
    assert [op.type for op in ops] == ["momentum"] * 4
    assert made.get_opti_var_name_list()[0] == "fc_0.b_0_velocity_0"
    with pytest.raises(NotImplementedError, match="has no state to load"):
        made.load({})


@pytest.mark.parametrize("batches", [1, 3])
def test_a_pipeline_in_one_process_accumulates_gradients(batches: int) -> None:
    def losses(wrap: Any) -> list[float]:
        with static.program_guard(static.Program(), static.Program()), static.unique_name.guard():
            x = static.data("x", [4, 3], "float32")
            loss = layers.mean(layers.square(layers.fc(x, 2, param_attr="w", bias_attr=False)))
            wrap(static.optimizer.Adam(0.1)).minimize(loss)
            executor = static.Executor(static.CPUPlace())
            with static.scope_guard(static.Scope()):
                executor.run(static.default_startup_program())
                start = np.arange(6, dtype="float32").reshape(3, 2)
                static.global_scope().var("w").get_tensor().set(start)
                feeds = [{"x": np.full((4, 3), i, "float32")} for i in range(1, 8)]
                return [float(executor.run(feed=f, fetch_list=[loss])[0][0]) for f in feeds]

    pipelined = losses(lambda inner: static.optimizer.PipelineOptimizer(inner, batches))
    merged = losses(lambda inner: static.optimizer.GradientMergeOptimizer(inner, batches))
    assert pipelined == merged
    if batches == 1:
        assert pipelined == losses(lambda inner: inner)


def test_a_pipeline_says_that_its_places_are_one_process() -> None:
    inner = static.optimizer.SGD(0.1)
    with pytest.warns(UserWarning, match="place_list of PipelineOptimizer names 2 places"):
        static.optimizer.PipelineOptimizer(
            inner, cut_list=[], place_list=[static.CPUPlace(), static.CUDAPlace(0)]
        )
    with pytest.raises(ValueError, match="num_microbatches of PipelineOptimizer"):
        static.optimizer.PipelineOptimizer(inner, num_microbatches=0)
