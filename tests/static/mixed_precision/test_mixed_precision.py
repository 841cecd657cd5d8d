"""Mixed precision of programs: which ops are cast, how it trains, and steps lost to overflow."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_networks as nets

from fleetx import static
from fleetx.static import layers, optimizer
from fleetx.static.mixed_precision import AutoMixedPrecisionLists, decorate


def decorated(made: Any = None, **settings: Any) -> Any:
    return decorate(made or optimizer.Momentum(0.1, 0.9), **settings)


def weights_after(make: Any) -> Any:
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
        static.unique_name.guard(),
    ):
        *_, loss = nets.mlp()
        make().minimize(loss)
        static.default_startup_program().random_seed = 1
        exe = nets.started()
        for name in ("fc_0.w_0", "fc_1.w_0"):
            shape = nets.value(name).shape
            value = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
            static.global_scope().var(name).get_tensor().set(value)
        for step in range(4):
            exe.run(feed=nets.batch(seed=step), fetch_list=[loss])
        return nets.value("fc_0.w_0")


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        ({"init_loss_scaling": 128.0, "dtype": "float16"}, 2e-3),
        (
            {"init_loss_scaling": 128.0, "use_dynamic_loss_scaling": False, "dtype": "float16"},
            2e-3,
        ),
        ({"init_loss_scaling": 128.0}, 2e-2),
        ({"use_bf16": True}, 2e-2),
        ({"dtype": "bfloat16"}, 2e-2),
        ({"amp_lists": AutoMixedPrecisionLists(custom_black_list=["mul"])}, 1e-6),
    ],
)
def test_half_precision_hardly_changes_the_training(
    settings: dict[str, Any], tolerance: float
) -> None:
    plain = weights_after(lambda: optimizer.Momentum(0.1, 0.9))
    half = weights_after(lambda: decorated(**settings))
    np.testing.assert_allclose(half, plain, atol=tolerance)
    assert (half == plain).all() == (tolerance < 1e-5)


@pytest.mark.parametrize("dtype", ["auto", "float16"])
def test_ops_and_state(dtype: str, caplog: pytest.LogCaptureFixture) -> None:
    *_, loss = nets.mlp()
    made = decorated(dtype=dtype)
    # Without a type it says which one runs; names, ops and state are Paddle's in either case.
    assert ("uses bfloat16, because" in caplog.text) == (dtype == "auto")
    with pytest.raises(RuntimeError, match="call one first"):
        made.get_loss_scaling()
    assert made.get_scaled_loss() is None
    ops, pairs = made.minimize(loss)
    types = [op.type for op in loss.block.ops]
    assert types[-6:] == ["check_finite_and_unscale", "update_loss_scaling"] + ["momentum"] * 4
    assert [op.type for op in ops] == ["momentum"] * 4
    half = loss.block.var("fc_0.w_0.cast_fp16").dtype
    assert str(half) == ("VarType.FP16" if dtype == "float16" else "VarType.BF16")
    assert len(pairs) == 4
    assert made.get_loss_scaling().name == "loss_scaling_0"
    exe = nets.started()
    scale, scaled, plain = exe.run(
        feed=nets.batch(), fetch_list=[made.get_loss_scaling(), made.get_scaled_loss(), loss]
    )
    assert np.asarray(scale).item() == 2**15
    np.testing.assert_allclose(scaled, np.asarray(plain) * 2**15, rtol=1e-6)
    assert nets.value("num_good_steps_0").item() == 1
    assert nets.value("num_bad_steps_0").item() == 0
    # What the wrapper does not have is the optimizer's.
    assert made.get_lr() == 0.1
    assert made.get_opti_var_name_list()[0] == "fc_0.b_0_velocity_0"
    assert copy.copy(made)._optimizer is made._optimizer


def test_an_overflow_loses_the_step_and_lowers_the_scale() -> None:
    x = layers.data("x", shape=[1], dtype="float32")
    loss = layers.mean(layers.fc(x, 1, bias_attr=False))
    made = decorated(
        optimizer.SGD(0.1), init_loss_scaling=4.0, decr_every_n_nan_or_inf=2, decr_ratio=0.5
    )
    made.minimize(loss)
    exe = nets.started()
    before = nets.value("fc_0.w_0")
    bad = {"x": np.array([[np.inf]], dtype=np.float32)}
    for _ in range(2):
        exe.run(feed=bad, fetch_list=[loss])
    np.testing.assert_array_equal(nets.value("fc_0.w_0"), before)
    assert nets.value("loss_scaling_0").item() == 2.0
    exe.run(feed={"x": np.ones((1, 1), dtype=np.float32)}, fetch_list=[loss])
    np.testing.assert_allclose(nets.value("fc_0.w_0"), before - 0.1, rtol=1e-5)


@pytest.mark.parametrize("skips", [False, True])
def test_updates_with_zeros_or_none_at_all(skips: bool) -> None:
    x = layers.data("x", shape=[1], dtype="float32")
    loss = layers.mean(layers.fc(x, 1, bias_attr=False))
    made = decorated(init_loss_scaling=4.0)
    made.skips_updates = skips
    made.minimize(loss)
    exe = nets.started()
    exe.run(feed={"x": np.ones((1, 1), dtype=np.float32)}, fetch_list=[loss])
    before = nets.value("fc_0.w_0")
    exe.run(feed={"x": np.array([[np.inf]], dtype=np.float32)}, fetch_list=[loss])
    # Zeros let the momentum go on; a skipped update does not.
    np.testing.assert_allclose(nets.value("fc_0.w_0"), before - (0 if skips else 0.09), atol=1e-6)


def test_the_scale_is_in_checkpoints(tmp_path: Path) -> None:
    *_, loss = nets.mlp()
    decorated(init_loss_scaling=16.0, incr_every_n_steps=2).minimize(loss)
    exe = nets.started()
    for _ in range(3):
        exe.run(feed=nets.batch(), fetch_list=[loss])
    static.io.save_persistables(exe, str(tmp_path))
    with static.scope_guard(static.Scope()):
        static.io.load_persistables(exe, str(tmp_path))
        assert nets.value("loss_scaling_0").item() == 32.0
        assert nets.value("num_good_steps_0").item() == 1
        assert nets.value("num_bad_steps_0").item() == 0


def conv_net() -> Any:
    image = layers.data("img", [1, 8, 8])
    y = layers.data("y", [1], dtype="int64")
    hidden = layers.batch_norm(layers.conv2d(image, 4, 3), act="relu")
    hidden = layers.pool2d(hidden, 2, "max", 2)
    return layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, 10), y))


def forward_ops(program: Any) -> list[str]:
    """Return the forward ops with the variable that a cast makes: `cast(x.cast_fp16)`."""
    return [
        f"cast({op.output('Out')[0]})" if op.type == "cast" else op.type
        for op in program.global_block().ops
        if op.op_role & 0xFF == 0
    ]


def test_the_ops_of_a_convolutional_network() -> None:
    # As Paddle 1.8.5 writes them, but for the constants of its loss scaling.
    loss = conv_net()
    decorated(init_loss_scaling=128.0, dtype="float16").minimize(loss)
    expected = """
        cast(img.cast_fp16) cast(conv2d_0.w_0.cast_fp16) conv2d cast(conv2d_0.b_0.cast_fp16)
        elementwise_add batch_norm relu pool2d cast(fc_0.w_0.cast_fp16) mul
        cast(fc_0.b_0.cast_fp16) elementwise_add cast(fc_0.tmp_1.cast_fp32)
        softmax_with_cross_entropy mean elementwise_mul
    """
    assert forward_ops(loss.block.program) == expected.split()
    types = {name: str(loss.block.var(name).dtype) for name in loss.block.vars}
    assert types["batch_norm_0.tmp_2"] == types["pool2d_0.tmp_0"] == "VarType.FP16"
    assert types["batch_norm_0.w_1"] == types["batch_norm_0.tmp_0"] == "VarType.FP32"
    assert types["conv2d_0.w_0@GRAD"] == types["batch_norm_0.w_0@GRAD"] == "VarType.FP32"
    exe = nets.started()
    images = np.random.default_rng(0).standard_normal((2, 1, 8, 8)).astype("float32")
    feed = {"img": images, "y": np.zeros((2, 1), "int64")}
    first, second = (exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(2))
    assert second < first


def test_custom_lists_and_names() -> None:
    def ops(**lists: Any) -> list[str]:
        program = static.Program()
        with static.program_guard(program, static.Program()), static.unique_name.guard():
            decorated(amp_lists=AutoMixedPrecisionLists(**lists)).minimize(nets.mlp()[2])
        return forward_ops(program)

    changed = ops(custom_white_list=["softmax"], custom_black_list=["tanh"])
    expected = """
        cast(fc_0.w_0.cast_fp16) cast(x.cast_fp16) mul cast(fc_0.b_0.cast_fp16) elementwise_add
        cast(fc_0.tmp_1.cast_fp32) tanh cast(fc_1.w_0.cast_fp16) cast(fc_0.tmp_2.cast_fp16) mul
        cast(fc_1.b_0.cast_fp16) elementwise_add softmax cast(fc_1.tmp_2.cast_fp32)
        cross_entropy2 mean elementwise_mul
    """
    assert changed == expected.split()
    named = ops(custom_black_varnames=["fc_0.w_0"])
    assert named[:3] == ["mul", "elementwise_add", "tanh"]
    assert "cast(fc_1.w_0.cast_fp16)" in named


def test_what_changes_while_the_program_runs_stays_single() -> None:
    x = layers.data("x", shape=[4], dtype="float32")
    kept = layers.create_global_var([1], 0.0, "float32", persistable=True, name="kept")
    hidden = layers.fc(x, 4, bias_attr=False)
    layers.assign(layers.reduce_sum(hidden), kept)
    more = layers.matmul(hidden, hidden, transpose_y=True)
    doubled = layers.cond(
        layers.reduce_sum(more) > 0, lambda: layers.scale(more, 2.0), lambda: more
    )
    loss = layers.mean(doubled)
    decorated(init_loss_scaling=8.0, dtype="float16").minimize(loss)
    assert str(kept.dtype) == str(more.dtype) == "VarType.FP32"
    assert str(hidden.dtype) == "VarType.FP16"
    exe = nets.started()
    assert np.isfinite(exe.run(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[loss])[0])


def test_recomputed_segments_are_cast_too() -> None:
    *_, loss = nets.mlp()
    inner = optimizer.RecomputeOptimizer(optimizer.Momentum(0.1, 0.9))
    inner._set_checkpoints(["fc_0.tmp_2"])
    decorated(inner).minimize(loss)
    made = [op.output("Out")[0] for op in loss.block.ops if op.type == "mul"]
    assert any("subprog" in name for name in made)
    exe = nets.started()
    losses = [exe.run(feed=nets.batch(), fetch_list=[loss])[0].item() for _ in range(5)]
    assert losses[-1] < losses[0]


def test_refused_settings() -> None:
    with pytest.raises(ValueError, match="use_pure_fp16 keeps parameters in float16"):
        decorated(use_pure_fp16=True)
    with pytest.raises(ValueError, match="'float16' or 'bfloat16', not 'float8'"):
        decorated(dtype="float8")


def test_a_fixed_scale_of_one_adds_nothing() -> None:
    *_, loss = nets.mlp()
    made = decorated(init_loss_scaling=1.0, use_dynamic_loss_scaling=False)
    made.minimize(loss)
    assert made.get_scaled_loss() is loss
    assert "check_finite_and_unscale" not in [op.type for op in loss.block.ops]


def test_lists_of_ops() -> None:
    lists = AutoMixedPrecisionLists(custom_white_list=["softmax"], custom_black_list={"mul"})
    assert "softmax" in lists.white_list
    assert "softmax" not in lists.black_list
    assert "mul" in lists.black_list
    assert "mul" not in lists.white_list
    with pytest.raises(ValueError, match="custom_white_list and custom_black_list overlap"):
        AutoMixedPrecisionLists(["mul"], ["mul"])
