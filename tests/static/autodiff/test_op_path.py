"""Which variables get a gradient, and which ops a backward pass concerns."""

from __future__ import annotations

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers
from fleetx.static.autodiff.op_path import op_path, stopped_gradients, unneeded_outputs


def run(fetches: list[object], feed: dict[str, object] | None = None) -> list[np.ndarray]:
    executor = static.Executor(static.CPUPlace())
    executor.run(static.default_startup_program())
    return executor.run(feed=feed or {}, fetch_list=fetches)


def test_constants_and_values_of_feeds_have_gradients() -> None:
    x = static.data("x", [2, 3], "float32")
    doubled = x * 2.0
    factor = layers.fill_constant([1], "float32", 5.0)
    factor.stop_gradient = False
    loss = layers.reduce_sum(doubled * factor)
    static.append_backward(loss)
    feed = np.arange(6, dtype="float32").reshape(2, 3)
    by_doubled, by_factor = run([doubled.name + "@GRAD", factor.name + "@GRAD"], {"x": feed})
    np.testing.assert_array_equal(by_doubled, np.full((2, 3), 5.0))
    np.testing.assert_array_equal(by_factor, [2 * feed.sum()])


def test_a_constant_with_stop_gradient_has_none() -> None:
    w = layers.create_parameter([2], "float32", name="w")
    constant = layers.fill_constant([2], "float32", 3.0)
    static.append_backward(layers.reduce_sum(w * constant))
    assert not static.default_main_program().global_block().has_var(constant.name + "@GRAD")


def test_a_branch_with_batch_norm_runs_forward_alone() -> None:
    """The gradient of the branch does not count as a write of the moving averages."""
    x = static.data("x", [4, 3], "float32")
    choice = static.data("choice", [1], "bool")
    out = layers.cond(choice, lambda: layers.batch_norm(layers.fc(x, 2)), lambda: layers.fc(x, 2))
    loss = layers.reduce_sum(out * out)
    static.append_backward(loss)
    feed = {"x": np.ones((4, 3), "float32"), "choice": np.array([False])}
    alone = run([loss], feed)[0]
    executor = static.Executor(static.CPUPlace())
    both = executor.run(feed=feed, fetch_list=[loss, "fc_1.w_0@GRAD"])
    np.testing.assert_array_equal(alone, both[0])
    assert np.abs(both[1]).sum() > 0


def test_the_path_from_sources_to_targets() -> None:
    x, y = static.data("x", [2], "float32"), static.data("y", [2], "float32")
    a = layers.exp(x)
    b = layers.sqrt(y)
    c = layers.sums([a, b])
    layers.tanh(a)
    block = static.default_main_program().global_block()
    assert [op.type for op in op_path(block, [c.name])] == ["exp", "sqrt", "sum"]
    assert [op.type for op in op_path(block, [c.name], sources=["x"])] == ["exp", "sum"]
    assert [op.type for op in op_path(block, [c.name], stop=[b.name])] == ["exp", "sum"]


def test_outputs_that_no_target_needs_have_no_gradient() -> None:
    x = layers.create_parameter([4, 2], "float32", name="x")
    first, second = layers.split(x, 2, dim=0)
    loss = layers.mean(first)
    block = static.default_main_program().global_block()
    path = op_path(block, [loss.name])
    assert unneeded_outputs(block, path, [loss.name], ()) == {second.name}
    second.stop_gradient = True
    assert unneeded_outputs(block, path, [loss.name], ()) == set()
    assert stopped_gradients(block.program) == {0: {second.name + "@GRAD"}}


def test_target_gradients_are_variables() -> None:
    x = static.data("x", [2], "float32")
    x.stop_gradient = False
    with pytest.raises(TypeError, match="target_gradients of gradients must be Variables"):
        static.gradients([layers.exp(x)], [x], target_gradients=["grad"])
