"""Branches, arrays and checks: only the chosen branch runs, and gradients pass through it."""

from __future__ import annotations

import numpy as np
import pytest
from small_programs import X, number, op_types, run

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
    with pytest.raises(ValueError, match="inside `with"):
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
    refusal = pytest.raises(ValueError, match=r"must set its results with output\(\)")
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


@pytest.mark.parametrize("stack", [False, True])
def test_gradients_of_every_element_of_an_array(stack: bool) -> None:
    parts = [static.data(name, [3, 2], "float32") for name in ("first", "second")]
    for part in parts:
        part.stop_gradient = False
    array = layers.create_array("float32")
    for i, part in enumerate(parts):
        layers.array_write(layers.scale(part, i + 2.0), number(i), array)
    joined, _ = layers.tensor_array_to_tensor(array, axis=1, use_stack=stack)
    loss = layers.reduce_sum(layers.square(joined))
    static.append_backward(loss)
    feed = {name: np.full((3, 2), 1.0 + i, "float32") for i, name in enumerate(("first", "second"))}
    # What is fetched between the ops makes each gradient op run on its own.
    between = [joined.grad_name, *(part.grad_name for part in parts)]
    found = run([loss, *between], feed)
    np.testing.assert_allclose(found[2], np.full((3, 2), 2 * 4 * 1.0))
    np.testing.assert_allclose(found[3], np.full((3, 2), 2 * 9 * 2.0))


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
