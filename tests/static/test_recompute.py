"""Recomputation: the same gradients, with activations between checkpoints made again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers
from fleetx.static.optimizer.recompute import RecomputeOptimizer

FEED = {"x": np.random.default_rng(0).random((6, 4), np.float32)}


def deep_net(*, dropout: float = 0.0) -> tuple[list[Any], Any]:
    """Return the hidden variables and the loss of four layers with fixed weights."""
    hidden = layers.data("x", [4])
    kept = []
    for i in range(4):
        weight = static.ParamAttr(
            name=f"w{i}", initializer=static.initializer.Constant(0.1 * i + 0.1)
        )
        hidden = layers.fc(hidden, 4, act="tanh", param_attr=weight)
        if dropout:
            hidden = layers.dropout(hidden, dropout)
        kept.append(hidden)
    return kept, layers.mean(hidden)


def trained_weights(checkpoints: tuple[int, ...] | None) -> list[np.ndarray]:
    """Return the weights after three steps of momentum."""
    with static.unique_name.guard(), static.program_guard(static.Program(), static.Program()):
        kept, loss = deep_net()
        optimizer: Any = static.optimizer.Momentum(0.5, 0.9)
        if checkpoints is not None:
            optimizer = RecomputeOptimizer(optimizer)
            optimizer._set_checkpoints([kept[i] for i in checkpoints])
        optimizer.minimize(loss)
        exe, scope = static.Executor(), static.Scope()
        exe.run(static.default_startup_program(), scope=scope)
        for _ in range(3):
            exe.run(feed=FEED, scope=scope)
        return [np.array(scope.find_var(f"w{i}").get_tensor()) for i in range(4)]


@pytest.mark.parametrize("checkpoints", [(0,), (2,), (0, 2), (2, 0), (1, 3), (0, 1, 2, 3)])
def test_training_is_the_same_as_without(checkpoints: tuple[int, ...]) -> None:
    for plain, again in zip(trained_weights(None), trained_weights(checkpoints), strict=True):
        np.testing.assert_allclose(again, plain, rtol=1e-5)


def test_ops_of_a_segment_run_again_before_its_gradients() -> None:
    kept, loss = deep_net()
    static.append_backward(loss, checkpoints=[kept[1].name])
    types = [op.type for op in static.default_main_program().global_block().ops]
    tail = types[types.index("mean_grad") + 1 :]
    last_two = ["tanh_grad", "elementwise_add_grad", "mul_grad"] * 2
    again = ["mul", "elementwise_add", "tanh", "mul", "elementwise_add"]
    assert tail == [*last_two, *again, *last_two]


def test_the_backward_pass_reads_checkpoints_only() -> None:
    kept, loss = deep_net()
    static.append_backward(loss, checkpoints=[kept[1], kept[3]])
    ops = static.default_main_program().global_block().ops
    first_gradient = next(i for i, op in enumerate(ops) if op.type == "mean_grad")
    made = {n for op in ops[:first_gradient] for n in op.output_arg_names}
    late = {n for op in ops[first_gradient:] for n in op.input_arg_names}
    assert made & late - {"mean_0.tmp_0", "mean_0.tmp_0@GRAD"} == {kept[1].name, kept[3].name}


def test_dropout_drops_the_same_elements_again() -> None:
    kept, loss = deep_net(dropout=0.5)
    static.append_backward(loss, checkpoints=[kept[2]])
    exe = static.Executor()
    exe.run(static.default_startup_program())
    mask = kept[0].op.output("Mask")[0]
    masks = [exe.run(feed=FEED, fetch_list=[mask, mask + ".subprog_0"]) for _ in range(2)]
    for first, again in masks:
        np.testing.assert_array_equal(first, again)
    assert not np.array_equal(masks[0][0], masks[1][0])


def test_a_loop_is_not_recomputed() -> None:
    x = layers.data("x", [4])
    less = layers.less_than(layers.zeros([1], "float32"), layers.ones([1], "float32"))
    y = layers.fc(layers.cond(less, lambda: x * 2.0, lambda: x), 2)
    with pytest.raises(ValueError, match="inner block cannot be recomputed"):
        static.append_backward(layers.mean(y), checkpoints=[y])


def test_checkpoints_must_be_set_first() -> None:
    _, loss = deep_net()
    with pytest.raises(ValueError, match="_set_checkpoints"):
        RecomputeOptimizer(static.optimizer.SGD(0.1)).minimize(loss)
