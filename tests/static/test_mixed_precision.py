"""Loss scaling: the same training in float32, steps lost to overflow, and the scale's course."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import small_networks as nets

from fleetx import static
from fleetx.static import layers, optimizer
from fleetx.static.mixed_precision import AutoMixedPrecisionLists, decorate


def decorated(made: Any = None, **settings: Any) -> Any:
    with pytest.warns(UserWarning, match="computes in float32"):
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


@pytest.mark.parametrize("dynamic", [True, False])
def test_scaling_does_not_change_the_training(dynamic: bool) -> None:
    plain = weights_after(lambda: optimizer.Momentum(0.1, 0.9))
    scaled = weights_after(
        lambda: decorated(use_dynamic_loss_scaling=dynamic, init_loss_scaling=128.0)
    )
    np.testing.assert_allclose(scaled, plain, rtol=1e-5, atol=1e-7)


def test_ops_and_state() -> None:
    *_, loss = nets.mlp()
    made = decorated()
    with pytest.raises(RuntimeError, match="call one first"):
        made.get_loss_scaling()
    assert made.get_scaled_loss() is None
    ops, pairs = made.minimize(loss)
    types = [op.type for op in loss.block.ops]
    assert types[-6:] == ["check_finite_and_unscale", "update_loss_scaling"] + ["momentum"] * 4
    assert [op.type for op in ops] == ["momentum"] * 4
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
    with pytest.raises(ValueError, match="Custom white list overlap custom black list"):
        AutoMixedPrecisionLists(["mul"], ["mul"])
