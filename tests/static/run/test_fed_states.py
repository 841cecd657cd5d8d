"""States that a script feeds once and the program then carries from run to run."""

from __future__ import annotations

import numpy as np

from fleetx import static
from fleetx.static import layers


def test_a_fed_persistable_variable_keeps_what_the_program_assigns() -> None:
    state = static.data("state", [2], "float32")
    state.persistable = True
    following = state * 2.0
    layers.assign(following, output=state)
    executor = static.Executor(static.CPUPlace())
    run = lambda feed: executor.run(feed=feed, fetch_list=[following])[0].tolist()  # noqa: E731
    assert run({"state": np.array([1.0, 3.0], "float32")}) == [2.0, 6.0]
    assert run({}) == [4.0, 12.0]
    assert run({}) == [8.0, 24.0]
    assert run({"state": np.array([1.0, 1.0], "float32")}) == [2.0, 2.0]


def test_all_values_of_a_classifier_can_be_fetched() -> None:
    x = static.data("x", [4, 3], "float32")
    y = static.data("y", [4, 1], "int64")
    loss = layers.mean(layers.cross_entropy(layers.fc(x, 2, act="softmax"), y))
    static.optimizer.Adam(0.1).minimize(loss)
    executor = static.Executor(static.CPUPlace())
    executor.run(static.default_startup_program())
    feed = {"x": np.ones((4, 3), "float32"), "y": np.zeros((4, 1), "int64")}
    variables = static.default_main_program().global_block().vars.values()
    names = [v.name for v in variables if not v.persistable and 0 not in v.shape]
    assert "cross_entropy2_0.tmp_1" not in names  # carries a shape, and no value
    assert all(value is not None for value in executor.run(feed=feed, fetch_list=names))
