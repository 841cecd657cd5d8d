"""Control flow: only the chosen branch runs, loops end, and gradients pass through both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers
from fleetx.static.initializer import Constant
from fleetx.static.layers.control_flow import ConditionalBlock, select_output
from fleetx.static.layers.structure import (
    assert_same_structure,
    flatten,
    map_structure,
    pack_sequence_as,
)
from fleetx.static.readers.lod_tensor import create_lod_tensor

X = np.array([[0.0, 0.1, 0.2], [1.0, 1.0, 1.0], [0.3, 0.3, 0.3]], "float32")


def run(fetch: list[Any], feed: dict[str, Any] | None = None, startup: bool = True) -> list[Any]:
    executor = static.Executor(static.CPUPlace())
    if startup:
        executor.run(static.default_startup_program())
    return executor.run(feed=feed or {}, fetch_list=fetch)


def number(value: float, dtype: str = "int64") -> Any:
    return layers.fill_constant([1], dtype, value)


def op_types(block: int = 0) -> list[str]:
    return [op.type for op in static.default_main_program().block(block).ops]


# -- loops -------------------------------------------------------------------------------------
def test_while_adds_until_its_condition_is_false() -> None:
    i, limit, total = number(0), number(4), number(0.0, "float32")
    condition = layers.less_than(i, limit)
    with layers.While(condition).block():
        layers.assign(layers.scale(total, 1.0, bias=2.0), total)
        layers.increment(i)
        layers.less_than(i, limit, cond=condition)
    assert [v.item() for v in run([i, total, condition])] == [4, 8.0, False]
    op = static.default_main_program().global_block().ops[-1]
    assert op.type == "while"
    assert {i.name, total.name, condition.name} == set(op.output("Out"))


def test_while_that_never_runs_keeps_values() -> None:
    total = number(3.0, "float32")
    condition = layers.less_than(number(5), number(4))
    with layers.While(condition).block():
        layers.assign(number(9.0, "float32"), total)
        layers.assign(condition, condition)
    assert run([total])[0].item() == 3.0


def test_while_whose_body_forgets_the_condition_is_refused() -> None:
    condition = layers.less_than(number(1), number(4))
    total = number(0.0, "float32")
    with layers.While(condition).block():
        layers.increment(total)
    with pytest.raises(RuntimeError, match="does not write its condition"):
        run([total])


def test_while_needs_a_boolean_with_one_value() -> None:
    with pytest.raises(TypeError, match="boolean"):
        layers.While(number(1))
    flags = layers.less_than(layers.fill_constant([2], "int64", 0), number(1))
    with pytest.raises(TypeError, match="one value"):
        layers.While(flags)


def test_gradients_flow_through_arrays_and_loops() -> None:
    x = static.data("x", [-1, 3], "float32")
    i, limit = number(0), number(3)
    array = layers.array_write(x, i)
    condition = layers.less_than(i, limit)
    with layers.While(condition).block():
        y = layers.fc(layers.array_read(array, i), 3, param_attr=Constant(0.5), bias_attr=False)
        layers.increment(i)
        layers.array_write(y, i, array)
        layers.less_than(i, limit, cond=condition)
    loss = layers.mean(layers.array_read(array, i))
    ((_, grad),) = static.append_backward(loss)
    found = run([loss, grad, layers.array_length(array)], {"x": X})
    # d mean(X W^3) / dW = sum over the three places of W in the product
    weight, ones = np.full((3, 3), 0.5), np.full((3, 3), 1 / 9)
    powers = [np.linalg.matrix_power(weight, n) for n in range(4)]
    expected = sum((X @ powers[n]).T @ ones @ powers[2 - n].T for n in range(3))
    assert found[0].item() == pytest.approx((X @ powers[3]).mean(), rel=1e-6)
    np.testing.assert_allclose(found[1], expected, rtol=1e-5)
    assert found[2].item() == 4


def test_a_loss_that_the_loop_itself_updates() -> None:
    x = static.data("x", [3, 3], "float32")
    loss = number(0.0, "float32")
    loss.stop_gradient = False
    i, limit = number(0), number(3)
    condition = layers.less_than(i, limit)
    with layers.While(condition).block():
        y = layers.mean(layers.fc(x, 1, param_attr=Constant(0.5), bias_attr=False))
        layers.assign(layers.elementwise_add(loss, layers.square(y)), loss)
        layers.increment(i)
        layers.less_than(i, limit, cond=condition)
    ((_, grad),) = static.append_backward(loss)
    value, found = run([loss, grad], {"x": X})
    y_value = X.mean(0).sum() * 0.5
    assert value.item() == pytest.approx(3 * y_value**2, rel=1e-5)
    np.testing.assert_allclose(found[:, 0], 6 * y_value * X.mean(0), rtol=1e-5)
    with pytest.raises(ValueError, match="as it was before the op"):
        run([f"{loss.name}@GRAD"], {"x": X}, startup=False)


def test_while_loop_returns_last_values_of_nested_variables() -> None:
    i, state = number(0), {"a": number(1.0, "float32"), "b": [number(2.0, "float32")]}

    def body(i: Any, state: Any) -> Any:
        a, b = state["a"], state["b"][0]
        new = {"a": layers.scale(a, 2.0), "b": [layers.elementwise_add(a, b)]}
        return layers.increment(i, in_place=False), new

    end, last = layers.while_loop(lambda i, s: layers.less_than(i, number(3)), body, [i, state])
    assert [v.item() for v in run([end, last["a"], last["b"][0]])] == [3, 8.0, 9.0]


def test_while_loop_checks_its_functions() -> None:
    i = number(0)
    less = lambda i: layers.less_than(i, number(3))  # noqa: E731
    with pytest.raises(TypeError, match="cond in while_loop should be callable"):
        layers.while_loop(i, less, [i])
    with pytest.raises(TypeError, match="list or tuple"):
        layers.while_loop(less, less, i)
    with pytest.raises(ValueError, match="not be empty"):
        layers.while_loop(less, less, [])
    with pytest.raises(ValueError, match="same arity"):
        layers.while_loop(less, lambda i: [i, i], [i])


# -- branches ----------------------------------------------------------------------------------
@pytest.mark.parametrize("flag", [True, False])
def test_cond_runs_one_branch_and_differentiates_it(flag: bool) -> None:
    x = static.data("x", [-1, 3], "float32")
    pred = layers.less_than(number(0 if flag else 2), number(1))
    y, tag = layers.cond(
        pred,
        lambda: (layers.fc(x, 2, param_attr=Constant(0.3)), number(1)),
        lambda: (layers.fc(x, 2, param_attr=Constant(0.7)), number(2)),
    )
    pairs = static.append_backward(layers.mean(y))
    grads = {param.name: grad for param, grad in pairs}
    value, chosen, first, second = run([y, tag, grads["fc_0.w_0"], grads["fc_1.w_0"]], {"x": X})
    np.testing.assert_allclose(value, X @ np.full((3, 2), 0.3 if flag else 0.7), rtol=1e-5)
    assert chosen.item() == (1 if flag else 2)
    expected = np.repeat(X.mean(0)[:, None] / 2, 2, 1)
    np.testing.assert_allclose(first, expected if flag else 0, rtol=1e-5)
    np.testing.assert_allclose(second, 0 if flag else expected, rtol=1e-5)


def test_the_branch_not_taken_has_no_effect() -> None:
    counter = layers.create_global_var([1], 0, "int64", persistable=True, name="counter")
    pred = layers.less_than(number(2), number(1))
    assert layers.cond(pred, lambda: layers.increment(counter) and None, lambda: None) is None
    assert run([counter])[0].item() == 0


def test_cond_wants_equal_structures() -> None:
    pred = layers.less_than(number(0), number(1))
    with pytest.raises(ValueError, match="true_fn returns None while false_fn returns non-None"):
        layers.cond(pred, lambda: None, lambda: number(1))
    with pytest.raises(ValueError, match="Incompatible return values"):
        layers.cond(pred, lambda: [number(1), number(2)], lambda: [number(1)])
    with pytest.raises(TypeError, match="true_fn in cond must be callable"):
        layers.cond(pred, number(1), lambda: None)
    with pytest.raises(TypeError, match="pred"):
        layers.cond(number(1), lambda: None)


@pytest.mark.parametrize("index", [0, 1, 2, 7])
def test_case_and_switch_case(index: int) -> None:
    i = number(index, "int32")
    fns = [lambda n=n: number(n, "float32") for n in (10.0, 20.0, 30.0)]
    one, two = number(1, "int32"), number(2, "int32")
    by_case = layers.case(
        [(layers.equal(i, one), fns[1]), (layers.equal(i, two), fns[2])], default=fns[0]
    )
    by_dict = layers.switch_case(i, {1: fns[1], 2: fns[2]}, default=fns[0])
    by_list = layers.switch_case(i, fns)  # the last function is the default
    found = [v.item() for v in run([by_case, by_dict, by_list])]
    usual = {1: 20.0, 2: 30.0}.get(index, 10.0)
    assert found == [usual, usual, {0: 10.0, 1: 20.0}.get(index, 30.0)]


def test_case_and_switch_case_check_their_arguments() -> None:
    pred = layers.less_than(number(0), number(1))
    with pytest.raises(TypeError, match="must be callable"):
        layers.case([(pred, 1)])
    with pytest.raises(TypeError, match="boolean Variable"):
        layers.case([(1, lambda: None)])
    with pytest.raises(ValueError, match="appears more than once"):
        layers.switch_case(number(0), [(1, lambda: None), (1, lambda: None)])
    with pytest.raises(TypeError, match="key's type"):
        layers.switch_case(number(0), {"a": lambda: None})


def test_switch_takes_the_first_true_case() -> None:
    step = layers.autoincreased_step_counter()
    rate = layers.create_global_var([1], 0.0, "float32", persistable=True, name="rate")
    with layers.Switch() as switch:
        with switch.case(layers.less_than(step, number(2))):
            layers.assign(number(0.1, "float32"), rate)
        with switch.case(layers.less_than(step, number(4))):
            layers.assign(number(0.2, "float32"), rate)
        with switch.default():
            layers.assign(number(0.3, "float32"), rate)
    found = [run([rate])[0].item()] + [run([rate], startup=False)[0].item() for _ in range(4)]
    assert found == pytest.approx([0.1, 0.2, 0.2, 0.3, 0.3])
    types = [t for t in op_types() if t.startswith(("logical", "conditional"))]
    assert types == [
        "logical_not",
        "conditional_block",
        "logical_not",
        "logical_and",
        "logical_and",
        "conditional_block",
        "conditional_block",
    ]


def test_switch_needs_its_with_and_a_case() -> None:
    switch = layers.Switch()
    with pytest.raises(ValueError, match="inside with"):
        switch.case(layers.less_than(number(0), number(1)))
    with switch, pytest.raises(ValueError, match="at least one condition"):
        switch.default()


def test_ifelse_sends_each_row_its_way() -> None:
    x = static.data("x", [-1, 3], "float32")
    total = layers.reduce_sum(x, dim=1, keep_dim=True)
    limit = layers.fill_constant_batch_size_like(x, [-1, 1], "float32", 1.0)
    branch = layers.IfElse(layers.less_than(total, limit))
    with branch.true_block():
        branch.output(layers.fc(branch.input(x), 2, param_attr=Constant(1.0)))
    with branch.false_block():
        branch.output(layers.fc(branch.input(x), 2, param_attr=Constant(-1.0)))
    (y,) = branch()
    pairs = static.append_backward(layers.reduce_sum(y))
    grads = {param.name: grad for param, grad in pairs}
    value, low, high = run([y, grads["fc_0.w_0"], grads["fc_1.w_0"]], {"x": X})
    sign = np.where(X.sum(1, keepdims=True) < 1, 1, -1)
    np.testing.assert_allclose(value, np.repeat(sign * X.sum(1, keepdims=True), 2, 1), rtol=1e-6)
    np.testing.assert_allclose(low[:, 0], X[[0, 2]].sum(0), rtol=1e-6)
    np.testing.assert_allclose(high[:, 0], X[1], rtol=1e-6)


def test_ifelse_needs_outputs_and_blocks() -> None:
    x = static.data("x", [-1, 1], "float32")
    branch = layers.IfElse(layers.less_than(x, x))
    with pytest.raises(ValueError, match="inside true_block or false_block"):
        branch.input(x)
    refusal = pytest.raises(ValueError, match=r"must name its results with output\(\)")
    with refusal, branch.true_block():
        branch.input(x)


def test_split_and_merge_whole_sequences() -> None:
    x = static.data("x", [-1, 1], "float32", lod_level=1)
    mask = static.data("mask", [-1, 1], "bool")
    yes, no = layers.split_lod_tensor(x, mask)
    both = layers.merge_lod_tensor(yes, no, x, mask)
    data = create_lod_tensor(np.arange(6, dtype="float32")[:, None], [[1, 3, 2]], None)
    feed = {"x": data, "mask": np.array([[True], [False], [True]])}
    executor = static.Executor(static.CPUPlace())
    found = executor.run(feed=feed, fetch_list=[yes, no, both], return_numpy=False)
    assert [np.asarray(v).ravel().tolist() for v in found] == [
        [0, 4, 5],
        [1, 2, 3],
        [0, 1, 2, 3, 4, 5],
    ]
    assert [v.lod() for v in found] == [[[0, 1, 3]], [[0, 3]], [[0, 1, 4, 6]]]


def test_conditional_block_and_select_output() -> None:
    out = [
        static.default_main_program().global_block().create_var(name=n, dtype="float32", shape=[1])
        for n in ("left", "right")
    ]
    select_output(number(5.0, "float32"), out, number(1, "int32"))
    target = number(1.0, "float32")
    with ConditionalBlock([layers.less_than(number(0), number(1))], True).block():
        layers.assign(out[1], target)
    assert run([target])[0].item() == 5.0


def test_an_error_inside_a_block_leaves_the_program_usable() -> None:
    pred = layers.less_than(number(0), number(1))
    with pytest.raises(KeyError):
        layers.cond(pred, lambda: {}["missing"], lambda: None)
    assert static.default_main_program().current_block_idx == 0


def test_a_clone_runs_its_own_blocks() -> None:
    x = static.data("x", [-1, 3], "float32")
    y = layers.cond(layers.less_than(number(0), number(1)), lambda: layers.scale(x, 2.0), lambda: x)
    test = static.default_main_program().clone(for_test=True)
    op = next(op for op in test.global_block().ops if op.type == "conditional_block")
    assert op.attr("sub_block") is test.block(1)
    found = static.Executor(static.CPUPlace()).run(test, feed={"x": X}, fetch_list=[y.name])
    np.testing.assert_allclose(found[0], X * 2)


# -- recurrent ---------------------------------------------------------------------------------
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


# -- arrays, printing, checking ----------------------------------------------------------------
def test_arrays() -> None:
    x = static.data("x", [-1, 3], "float32")
    array = layers.create_array("float32")
    layers.array_write(x, number(0), array)
    layers.array_write(layers.scale(x, 2.0), number(1), array)
    joined, sizes = layers.tensor_array_to_tensor(array, axis=0)
    stacked, _ = layers.tensor_array_to_tensor(array, axis=0, use_stack=True)
    found = run([joined, sizes, stacked, layers.array_length(array)], {"x": X})
    np.testing.assert_allclose(found[0], np.concatenate([X, 2 * X]))
    assert found[1].tolist() == [3, 3]
    np.testing.assert_allclose(found[2], np.stack([X, 2 * X]))
    assert found[3].item() == 2
    with pytest.raises(TypeError, match="must be a tensor array"):
        layers.array_read(x, number(0))
    with pytest.raises(RuntimeError, match="read at place 5, where nothing was written"):
        run([layers.array_read(array, number(5))], {"x": X})


def test_is_empty_and_increment() -> None:
    x = static.data("x", [-1, 3], "float32")
    one = number(1.0, "float32")
    more = layers.increment(one, 2.0, in_place=False)
    assert [v.item() for v in run([layers.is_empty(x), one, more], {"x": X})] == [False, 1, 3]
    assert run([layers.is_empty(x)], {"x": X[:0]})[0].item()


def test_print_shows_values_and_gradients(capfd: pytest.CaptureFixture[str]) -> None:
    x = static.data("x", [-1, 3], "float32")
    x.stop_gradient = False
    loss = layers.mean(layers.Print(x, message="look:", summarize=2))
    (grad,) = static.gradients([loss], [x])
    run([grad], {"x": X})
    text = capfd.readouterr().out
    assert "look:\nVariable: x\n" in text
    assert "shape: [3, 3]" in text
    assert "dtype: float32" in text
    assert "@GRAD" in text
    assert "0.1111" in text


def test_print_first_n(capfd: pytest.CaptureFixture[str]) -> None:
    x = static.data("x", [-1, 3], "float32")
    y = layers.Print(x, first_n=2, message="once more")
    executor = static.Executor(static.CPUPlace())
    for _ in range(4):
        executor.run(feed={"x": X}, fetch_list=[y])
    assert capfd.readouterr().out.count("once more") == 2


def test_assert_stops_the_run_and_shows_data() -> None:
    x = static.data("x", [-1, 3], "float32")
    layers.Assert(layers.less_than(layers.reduce_max(x), number(1.0, "float32")), [x], 2)
    run([x], {"x": X[:1]})
    with pytest.raises(RuntimeError, match=r"x = \[0.0, 0.1"):
        run([x], {"x": X})


# -- nested structures -------------------------------------------------------------------------
def test_structures() -> None:
    nest = {"b": [1, (2, 3)], "a": 0}
    assert flatten(nest) == [0, 1, 2, 3]
    assert pack_sequence_as(nest, "wxyz") == {"a": "w", "b": ["x", ("y", "z")]}
    assert map_structure(lambda a, b: a + b, [1, (2,)], [10, (20,)]) == [11, (22,)]
    with pytest.raises(ValueError, match="fewer values"):
        pack_sequence_as(nest, [1])
    with pytest.raises(ValueError, match="too many"):
        pack_sequence_as([1], [1, 2])
    assert_same_structure([1, 2], (3, 4), check_types=False)
    with pytest.raises(TypeError, match="list where the other has a tuple"):
        assert_same_structure([1, 2], (3, 4))
    with pytest.raises(ValueError, match="keys"):
        assert_same_structure({"a": 1}, {"b": 1})
