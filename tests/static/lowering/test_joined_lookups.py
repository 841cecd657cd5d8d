"""Look-ups in one table as one call: same numbers, and only where nothing comes in between."""

from __future__ import annotations

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers
from fleetx.static.layers.nn import embedding_v2
from fleetx.static.run.executor import _Prepared

_IDS = ([[1], [2]], [[2], [3]], [[0], [2]])
FEED = {f"ids{i}": np.array(ids, "int64") for i, ids in enumerate(_IDS)}


def train(*, fetch_rows=False, chained=False, padding=None):
    """Train a table by three look-ups for two steps; return it and the lowered step."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        attr = static.ParamAttr(name="table", initializer=static.initializer.Constant(0.5))
        ids = [layers.data(name, [1], dtype="int64") for name in FEED]
        rows = []
        for each in ids:
            if chained and rows:
                each = layers.cast(layers.reduce_sum(rows[-1], dim=1, keep_dim=True), "int64")
            rows.append(layers.embedding(each, [4, 2], param_attr=attr, padding_idx=padding))
        weights = [layers.scale(row, scale=float(i + 1)) for i, row in enumerate(rows)]
        loss = layers.reduce_sum(layers.square(layers.sums(weights)))
        static.optimizer.SGD(0.01).minimize(loss)
    executor, scope = static.Executor(static.CPUPlace()), static.Scope()
    with static.scope_guard(scope):
        executor.run(startup)
        for _ in range(2):
            executor.run(main, feed=FEED, fetch_list=[loss, *(rows if fetch_rows else [])])
        (prepared,) = main.binding.steps[executor].values()
        assert isinstance(prepared, _Prepared)
        return scope.find_var("table").get_tensor().numpy(), prepared.step(False).source


def by_hand(padding=None):
    """Do the same with numpy."""
    table = np.full((4, 2), 0.5, "float32")
    for _ in range(2):
        used = [FEED[name][:, 0] for name in FEED]
        seen = [table[ids] * (ids != padding)[:, None] for ids in used]
        total = sum((i + 1) * rows for i, rows in enumerate(seen))
        gradient = np.zeros_like(table)
        for i, ids in enumerate(used):
            np.add.at(gradient, ids, 2 * (i + 1) * total * (ids != padding)[:, None])
        table -= 0.01 * gradient
    return table


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("fetch_rows", [False, True])
def test_joined_lookups_give_the_same(padding, fetch_rows):
    table, source = train(padding=padding, fetch_rows=fetch_rows)
    np.testing.assert_allclose(table, by_hand(padding), rtol=1e-5)
    assert sum("(((" in line for line in source.split("autograd_grad")[0].splitlines()) == 1


def test_ids_made_of_rows_keep_their_place():
    _, source = train(chained=True)
    assert "(((" not in source.split("autograd_grad")[0]


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("places", ["rrr", "xrr", "rxrx", "rr"])
def test_lookups_side_by_side_are_one(places, v2):
    """r is a look-up, x something else; fetching a part keeps it a part."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        attr = static.ParamAttr(name="table", initializer=static.initializer.Uniform(seed=5))
        parts, rows = [], []
        for place in places:
            if place == "x":
                parts.append(layers.data(f"x{len(parts)}", [3]))
                continue
            ids = layers.data(f"ids{len(rows)}", [1], dtype="int64")
            look_up = embedding_v2 if v2 else layers.embedding
            row = look_up(ids, [4, 2], param_attr=attr, padding_idx=3)
            rows.append(layers.reshape(row, [-1, 2]) if v2 else row)
            parts.append(rows[-1])
        wide = layers.concat(parts, axis=1)
        weight = static.ParamAttr(initializer=static.initializer.Uniform(seed=6))
        loss = layers.reduce_sum(layers.fc(wide, 2, act="tanh", param_attr=weight))
        static.optimizer.SGD(0.1).minimize(loss)
    feed = {name: FEED[name] for name in FEED if int(name[3:]) < len(rows)}
    numbers = np.linspace(0, 1, 6, dtype="float32").reshape(2, 3)
    feed.update({f"x{i}": numbers for i, place in enumerate(places) if place == "x"})
    tables, calls = [], []
    for fetches in ([loss, wide], [loss, wide, *rows]):
        executor, scope = static.Executor(static.CPUPlace()), static.Scope()
        with static.scope_guard(scope):
            executor.run(startup)
            first = executor.run(main, feed=feed, fetch_list=fetches)[1]
            second = executor.run(main, feed=feed, fetch_list=fetches)[1]
            tables.append((first, second, scope.find_var("table").get_tensor().numpy()))
        (prepared,) = main.binding.steps[executor].values()
        forward = prepared.step(False).source.split("autograd_grad")[0]
        calls.append(sum(" = f" in line for line in forward.splitlines()))
    for joined, apart in zip(*tables, strict=True):
        np.testing.assert_allclose(joined, apart, rtol=1e-6)
    assert not np.allclose(tables[0][0], tables[0][1])
    # The parts that are fetched are made one by one, but looked up together.
    assert calls[1] - calls[0] == 1 + v2 * len(rows)
