"""Adam on tables that are looked up with is_sparse: only rows in use, and Paddle's numbers."""

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers, optimizer
from fleetx.static.clip import GradientClipByGlobalNorm

BATCHES = [([0, 1, 0], [[1, 2], [3, 4], [5, 6]]), ([2, 1, 1], [[1, 2], [3, -4], [-5, 6]])]


def train(*, is_sparse, lazy=False, clip=None, tables=1):
    """Train a table of three rows for two steps; return it and the main program."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        ids = layers.data("ids", [1], dtype="int64")
        weight = layers.data("weight", [2])
        attr = static.ParamAttr(name="table", initializer=static.initializer.Constant(1.0))
        looked = [
            layers.embedding(ids, [3, 2], is_sparse=is_sparse, param_attr=attr)
            for _ in range(tables)
        ]
        loss = layers.reduce_sum(layers.sums(looked) * weight)
        optimizer.Adam(0.1, lazy_mode=lazy, grad_clip=clip).minimize(loss)
    executor, scope = static.Executor(static.CPUPlace()), static.Scope()
    with static.scope_guard(scope):
        executor.run(startup)
        for rows, weights in BATCHES:
            feed = {
                "ids": np.array(rows, "int64").reshape(-1, 1),
                "weight": np.array(weights, "float32"),
            }
            executor.run(main, feed=feed, fetch_list=[loss])
        return scope.find_var("table").get_tensor().numpy(), main


def test_rows_in_use_alone_are_updated_in_lazy_mode():
    # What Paddle 1.8.5 and 2.6.2 give on the CPU.
    value, _ = train(is_sparse=True, lazy=True)
    wanted = [[0.9255866, 0.9255866], [0.9131801, 0.845563], [0.9361191, 0.9361191]]
    np.testing.assert_allclose(value, wanted, rtol=1e-6)


def test_all_rows_move_otherwise():
    value, _ = train(is_sparse=True)
    wanted = [[0.868065, 0.868065], [0.9131801, 0.845563], [0.9361191, 0.9361191]]
    np.testing.assert_allclose(value, wanted, rtol=1e-6)


def test_dense_gradients_are_not_concerned():
    value, main = train(is_sparse=False, lazy=True)
    wanted = [[0.8329944, 0.8329944], [0.885548, 0.8067823], [0.9255866, 0.9255866]]
    np.testing.assert_allclose(value, wanted, rtol=1e-6)


@pytest.mark.parametrize("tables", [1, 2])
def test_rows_are_known_behind_sums_and_clips(tables):
    value, main = train(
        is_sparse=True, lazy=True, clip=GradientClipByGlobalNorm(1.0), tables=tables
    )
    assert (value[0] == value[0][0]).all()  # used in the first step only, and moved there
    assert value[0][0] != 1.0
