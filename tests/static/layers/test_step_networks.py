"""Recurrent networks whose step is a block: StaticRNN, DynamicRNN, and rank tables."""

from __future__ import annotations

import numpy as np
import pytest
from small_programs import number, run

from fleetx import static
from fleetx.static import layers
from fleetx.static.initializer import Constant
from fleetx.static.readers.lod_tensor import create_lod_tensor


def test_static_rnn_steps_along_the_first_dimension() -> None:
    x = static.data("x", [4, -1, 2], "float32")
    rnn = layers.StaticRNN()
    with rnn.step():
        now = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 3], batch_ref=now)
        hidden = layers.fc([now, before], 3, act="tanh", param_attr=Constant(0.3))
        rnn.update_memory(before, hidden)
        rnn.step_output(hidden)
    out = rnn()
    loss = layers.mean(out)
    pairs = static.append_backward(loss)
    data = np.random.default_rng(0).uniform(-1, 1, (4, 2, 2)).astype("float32")
    value, grad = run([out, {p.name: g for p, g in pairs}["fc_0.w_1"]], {"x": data})
    state, states, slope, total = np.zeros((2, 3)), [], np.zeros((2, 3)), 0.0
    for step in data:  # all weights are equal, so one derivative with respect to all of fc_0.w_1
        drive = 0.3 * state.sum(1, keepdims=True)
        slope = state.sum(1, keepdims=True) + 0.3 * slope.sum(1, keepdims=True)
        state = np.tanh(0.3 * step.sum(1, keepdims=True) + drive) * np.ones((1, 3))
        slope = (1 - state**2) * slope
        states.append(state)
        total += slope.sum()
    np.testing.assert_allclose(value, np.stack(states), rtol=1e-5)
    assert grad.sum() == pytest.approx(total / 24, rel=1e-4)


def test_static_rnn_says_what_is_missing() -> None:
    x = static.data("x", [4, -1, 2], "float32")
    rnn = layers.StaticRNN()
    with pytest.raises(ValueError, match=r"inside `with rnn.step\(\):`"):
        rnn.step_input(x)
    with pytest.raises(ValueError, match="only after its block"):
        rnn()
    with pytest.raises(ValueError, match="never updated"), rnn.step():
        rnn.memory(init=x)


def test_dynamic_rnn_ends_each_sequence_at_its_length() -> None:
    x = static.data("x", [-1, 2], "float32", lod_level=1)
    start = static.data("start", [-1, 2], "float32")
    rnn = layers.DynamicRNN()
    with rnn.block():
        now = rnn.step_input(x)
        state = rnn.memory(init=start, need_reorder=True)
        fixed = rnn.static_input(start)
        count = rnn.memory(shape=[1], value=0.0)
        new = layers.elementwise_add(layers.elementwise_add(state, now), fixed)
        more = layers.scale(count, 1.0, bias=1.0)
        rnn.update_memory(state, new)
        rnn.update_memory(count, more)
        rnn.output(new, more)
    sums, counts = rnn()
    loss = layers.reduce_sum(layers.sequence_last_step(sums))
    grad_x, grad_start = static.gradients([loss], [x, start])
    lengths = [1, 3, 2]
    data, first = np.arange(12.0, dtype="float32").reshape(6, 2), np.eye(3, 2, dtype="float32")
    feed = {"x": create_lod_tensor(data, [lengths], None), "start": first}
    executor = static.Executor(static.CPUPlace())
    found = executor.run(
        feed=feed, fetch_list=[sums, counts, grad_x, grad_start], return_numpy=False
    )
    expected, numbers = [], []
    for rows, row in zip(np.split(data, [1, 4]), first, strict=True):
        steps = np.arange(1, len(rows) + 1)
        expected.append(np.cumsum(rows, 0) + row * (1 + steps[:, None]))
        numbers += steps.tolist()
    np.testing.assert_allclose(np.asarray(found[0]), np.concatenate(expected))
    assert np.asarray(found[1]).ravel().tolist() == numbers
    assert found[0].lod() == [[0, 1, 4, 6]]
    np.testing.assert_allclose(np.asarray(found[2]), np.ones((6, 2)))
    np.testing.assert_allclose(np.asarray(found[3]), [[2, 2], [4, 4], [3, 3]])


def test_dynamic_rnn_over_two_levels_sees_inner_sequences() -> None:
    x = static.data("x", [-1, 1], "float32", lod_level=2)
    rnn = layers.DynamicRNN()
    with rnn.block():
        sentence = rnn.step_input(x)
        rnn.output(layers.sequence_pool(sentence, "sum"))
    out = rnn()
    data = create_lod_tensor(np.arange(6, dtype="float32")[:, None], [[1, 2], [2, 1, 3]], None)
    (found,) = static.Executor(static.CPUPlace()).run(
        feed={"x": data}, fetch_list=[out], return_numpy=False
    )
    assert np.asarray(found).ravel().tolist() == [1, 2, 12]
    assert found.lod() == [[0, 1, 3]]


@pytest.mark.parametrize("level", [0, 1])
def test_rank_table_cuts_and_joins_three_levels(level: int) -> None:
    lengths = [[2, 1], [2, 1, 3], [1, 2, 3, 1, 1, 2]]
    x = static.data("x", [-1, 1], "float32", lod_level=3)
    table = layers.lod_rank_table(x, level=level)
    array = layers.lod_tensor_to_array(x, table)
    first = layers.array_read(array, number(0))
    again = layers.array_to_lod_tensor(array, table)
    data = create_lod_tensor(np.arange(10, dtype="float32")[:, None], lengths, None)
    found = static.Executor().run(feed={"x": data}, fetch_list=[first, again], return_numpy=False)
    np.testing.assert_array_equal(np.asarray(found[1]), data.numpy())
    assert found[1].recursive_sequence_lengths() == lengths
    if level == 0:  # the first paragraph of either text; both have one
        assert found[0].recursive_sequence_lengths() == [[2, 3], [1, 2, 1, 1, 2]]
    else:  # the longest paragraph comes first
        assert found[0].recursive_sequence_lengths() == [[1, 1, 3]]


def test_rank_table_cuts_and_joins() -> None:
    x = static.data("x", [-1, 1], "float32", lod_level=1)
    table = layers.lod_rank_table(x)
    array = layers.lod_tensor_to_array(x, table)
    second = layers.array_read(array, number(1))
    again = layers.array_to_lod_tensor(array, table)
    ordered = layers.reorder_lod_tensor_by_rank(x, table)
    data = create_lod_tensor(np.arange(6, dtype="float32")[:, None], [[1, 3, 2]], None)
    found = run([layers.max_sequence_len(table), second, again, ordered], {"x": data})
    assert [v.ravel().tolist() for v in found] == [
        [3],
        [2, 5],
        [0, 1, 2, 3, 4, 5],
        [1, 2, 3, 4, 5, 0],
    ]
