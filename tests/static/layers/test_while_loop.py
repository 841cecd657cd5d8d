"""Loops end, and gradients pass through them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_programs import X, number, run

from fleetx import static
from fleetx.static import layers
from fleetx.static.initializer import Constant
from fleetx.static.layers.control_flow import ConditionalBlock


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
    # Of the value before the loop, to which the loop adds.
    assert run([f"{loss.name}@GRAD"], {"x": X}, startup=False)[0].item() == 1.0


def _square(i: Any, x: Any) -> Any:
    return layers.increment(i), layers.elementwise_mul(i, i)


def _shrink(i: Any, x: Any) -> Any:
    return layers.scale(i, 1.0, bias=1.0), layers.elementwise_mul(layers.tanh(x), i)


@pytest.mark.parametrize("body", [_square, _shrink])
@pytest.mark.parametrize("also_before", [False, True])
def test_gradients_of_variables_that_a_loop_overwrites(body: Any, also_before: bool) -> None:
    """They are those of the values before the loop, here by central differences."""
    i, x = (static.data(name, [1], "float64") for name in "ix")
    i.stop_gradient = x.stop_gradient = False
    before = layers.elementwise_mul(i, layers.square(x))
    limit = layers.fill_constant([1], "float64", 4.0)
    _, last = layers.while_loop(lambda i, x: layers.less_than(i, limit), body, [i, x])
    loss = layers.mean(layers.elementwise_add(last, before) if also_before else last)
    static.append_backward(loss)

    def value(i: float, x: float) -> float:
        return run([loss], {"i": np.array([i]), "x": np.array([x])})[0].item()

    at, step = {"i": np.array([1.25]), "x": np.array([0.4])}, 1e-5
    numeric = {
        "i": (value(1.25 + step, 0.4) - value(1.25 - step, 0.4)) / (2 * step),
        "x": (value(1.25, 0.4 + step) - value(1.25, 0.4 - step)) / (2 * step),
    }
    for names in (["i", "x"], ["x"], ["i"]):
        for name, found in zip(names, run([f"{n}@GRAD" for n in names], at), strict=True):
            assert found.item() == pytest.approx(numeric[name], abs=1e-8), name
    # A loop that does not run passes the gradient on.
    at["i"] += 4
    passed = run(["x@GRAD"], at)[0].item()
    assert passed == pytest.approx(1.0 + also_before * 2 * at["i"].item() * 0.4)


def test_gradients_of_a_variable_that_a_branch_may_overwrite() -> None:
    x = static.data("x", [1], "float64")
    x.stop_gradient = False
    y = layers.scale(x, 3.0)
    big = layers.greater_than(x, layers.fill_constant([1], "float64", 1.0))
    with ConditionalBlock([big], is_scalar_condition=True).block():
        layers.assign(layers.square(y), y)
    static.append_backward(layers.mean(y))
    for x_value, of_y in ((0.5, 1.0), (2.0, 12.0)):
        found = run([y.grad_name, "x@GRAD"], {"x": np.array([x_value])})
        assert [v.item() for v in found] == [of_y, 3 * of_y]


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
