"""Runs of a part of a program: use_prune, and updates named in fetch_list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers

FEED = {"x": np.ones((4, 2), np.float32), "y": np.zeros((4, 1), np.int64)}


def two_losses() -> tuple[Any, Any]:
    x = layers.data("x", [2])
    y = layers.data("y", [1], dtype="int64")
    weight = static.ParamAttr(name="w", initializer=static.initializer.Constant(1.0))
    guess = layers.fc(x, 2, act="softmax", param_attr=weight)
    losses = [layers.mean(layers.cross_entropy(guess, y)) for _ in range(2)]
    for loss in losses:
        loss.persistable = True
    return losses[0], losses[1]


def weight(scope: static.Scope) -> np.ndarray:
    return np.array(scope.find_var("w").get_tensor())


@pytest.mark.parametrize("use_prune", [False, True])
def test_use_prune_leaves_out_what_nobody_asked_for(use_prune: bool) -> None:
    first, second = two_losses()
    scope = static.Scope()
    exe = static.Executor()
    exe.run(static.default_startup_program(), scope=scope)
    exe.run(feed=FEED, fetch_list=[first], scope=scope, use_prune=use_prune)
    assert scope.find_var(first.name) is not None
    assert (scope.find_var(second.name) is None) == use_prune


def test_use_prune_keeps_the_updates() -> None:
    first, _ = two_losses()
    static.optimizer.SGD(0.5).minimize(first)
    scope = static.Scope()
    exe = static.Executor()
    exe.run(static.default_startup_program(), scope=scope)
    before = weight(scope)
    exe.run(feed=FEED, fetch_list=[first], scope=scope, use_prune=True)
    assert not np.array_equal(weight(scope), before)


@pytest.mark.parametrize("whole_pair", [False, True])
def test_only_the_updates_in_fetch_list_run(whole_pair: bool) -> None:
    first, second = two_losses()
    optimizer = static.optimizer.SGD(0.5)
    pair = optimizer.minimize(first)
    one = static.default_main_program().clone()
    optimizer.minimize(second)
    exe = static.Executor()
    weights = []
    for program, fetches in (
        (static.default_main_program(), [first, pair if whole_pair else pair[0]]),
        (one, [first]),
        (static.default_main_program(), [first]),
    ):
        scope = static.Scope()
        exe.run(static.default_startup_program(), scope=scope)
        assert len(exe.run(program, feed=FEED, fetch_list=fetches, scope=scope)) == 1
        weights.append(weight(scope))
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_a_pruned_program_is_made_once_until_the_program_changes() -> None:
    first, _ = two_losses()
    exe = static.Executor()
    exe.run(static.default_startup_program())
    program = static.default_main_program()
    made = [exe._pruned(program, FEED, [first.name], []) for _ in range(2)]
    assert made[0] is made[1]
    layers.scale(first, 2.0)
    assert exe._pruned(program, FEED, [first.name], []) is not made[0]


def test_pruning_names_an_unknown_target() -> None:
    two_losses()
    with pytest.raises(ValueError, match="no variable 'lost'"):
        static.default_main_program()._prune(["lost"])
