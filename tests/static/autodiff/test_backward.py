"""The backward pass: visible in the program, equal to torch's autograd, in one call or op by op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_networks import batch, mlp, started, value

from fleetx import static
from fleetx.static import layers
from fleetx.static.lowering import plan


def torch_gradients(feed: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the gradients of `mlp`'s parameters, written by hand in torch."""
    names = ["fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"]
    leaves = [torch.tensor(value(n), requires_grad=True) for n in names]
    w0, b0, w1, b1 = leaves
    h = torch.tanh(torch.from_numpy(feed["x"]) @ w0 + b0)
    loss = torch.nn.functional.cross_entropy(h @ w1 + b1, torch.from_numpy(feed["y"]).view(-1))
    loss.backward()
    return {n: t.grad.numpy() for n, t in zip(names, leaves, strict=True) if t.grad is not None}


def test_gradients_equal_torch() -> None:
    _, _, loss = mlp()
    pairs = static.append_backward(loss)
    assert [p.name for p, _ in pairs] == ["fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"]
    feed = batch()
    found = started().run(feed=feed, fetch_list=[g for _, g in pairs])
    expected = torch_gradients(feed)
    for (param, grad), array in zip(pairs, found, strict=True):
        assert grad.name == param.name + "@GRAD"
        np.testing.assert_allclose(array, expected[param.name], rtol=1e-5, atol=1e-7)


def test_gradient_ops_are_visible_and_intermediate_gradients_fetchable() -> None:
    prediction, _, loss = mlp()
    static.append_backward(loss)
    types = [op.type for op in static.default_main_program().global_block().ops]
    assert types[-8:] == [
        "mean_grad",
        "cross_entropy_grad2",
        "softmax_grad",
        "elementwise_add_grad",
        "mul_grad",
        "tanh_grad",
        "elementwise_add_grad",
        "mul_grad",
    ]
    feed = batch()
    got, p = started().run(feed=feed, fetch_list=[prediction.grad_name, prediction])
    expected = np.zeros_like(p)
    rows = np.arange(len(p))
    expected[rows, feed["y"][:, 0]] = -1.0 / p[rows, feed["y"][:, 0]] / len(p)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_one_call_equals_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, loss = mlp()
    pairs = static.append_backward(loss)
    exe = started()
    fetches = [g for _, g in pairs]
    at_once = exe.run(feed=batch(), fetch_list=fetches)
    monkeypatch.setattr(plan, "find_backward_calls", lambda *a: None)
    one_by_one = static.Executor().run(feed=batch(), fetch_list=fetches)
    for a, b in zip(at_once, one_by_one, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_a_variable_used_twice_gets_the_sum() -> None:
    x = layers.data("x", shape=[3], dtype="float32")
    x.stop_gradient = False
    h = layers.scale(x, 2.0)
    loss = layers.reduce_sum(layers.elementwise_add(layers.square(h), layers.scale(h, 5.0)))
    static.append_backward(loss, parameter_list=[])
    ops = static.default_main_program().global_block().ops
    assert "sum" in [op.type for op in ops]
    feed = {"x": np.array([[1.0, 2.0, 3.0]], dtype=np.float32)}
    (grad,) = static.Executor().run(feed=feed, fetch_list=["x@GRAD"])
    np.testing.assert_allclose(grad, 8 * feed["x"] + 10)


def test_stop_gradient_and_no_grad_set_cut_the_way() -> None:
    x = layers.data("x", shape=[4], dtype="float32")
    first = layers.fc(x, 4, bias_attr=False)
    second = layers.fc(first, 1, bias_attr=False)
    loss = layers.mean(second)
    pairs = static.append_backward(loss, no_grad_set={first.name})
    assert [p.name for p, _ in pairs] == ["fc_1.w_0"]
    with static.program_guard(static.Program(), static.Program()):
        x = layers.data("x", shape=[4], dtype="float32")
        first = layers.fc(x, 4, bias_attr=False)
        first.stop_gradient = True
        pairs = static.append_backward(layers.mean(layers.fc(first, 1, bias_attr=False)))
        assert len(pairs) == 1


def test_frozen_parameters_get_no_gradient() -> None:
    x = layers.data("x", shape=[4], dtype="float32")
    frozen = static.ParamAttr(name="frozen", trainable=False)
    h = layers.fc(x, 4, param_attr=frozen, bias_attr=False)
    pairs = static.append_backward(layers.mean(layers.fc(h, 1, bias_attr=False)))
    assert [p.name for p, _ in pairs] == ["fc_1.w_0"]


def test_gradients_of_targets_in_inputs() -> None:
    x = layers.data("x", shape=[3], dtype="float32")
    x.stop_gradient = False
    y = layers.square(x)
    weight = layers.data("weight", shape=[3], dtype="float32")
    (plain,) = static.gradients(y, x)
    (weighted,) = static.gradients(y, x, target_gradients=weight)
    assert plain is not None
    assert weighted is not None
    assert plain.name != weighted.name
    feed = {
        "x": np.array([[1.0, -2.0, 3.0]], dtype=np.float32),
        "weight": np.array([[1.0, 10.0, 100.0]], dtype=np.float32),
    }
    a, b = static.Executor().run(feed=feed, fetch_list=[plain, weighted])
    np.testing.assert_allclose(a, 2 * feed["x"])
    np.testing.assert_allclose(b, 2 * feed["x"] * feed["weight"])


def test_unreachable_input_has_no_gradient() -> None:
    x = layers.data("x", shape=[3], dtype="float32")
    other = layers.data("other", shape=[3], dtype="float32")
    assert static.gradients(layers.square(x), other) == [None]


def test_gradient_of_a_gradient() -> None:
    x = layers.data("x", shape=[3], dtype="float32")
    x.stop_gradient = False
    (first,) = static.gradients(layers.reduce_sum(layers.elementwise_mul(layers.square(x), x)), x)
    (second,) = static.gradients(layers.reduce_sum(first), x)
    feed = {"x": np.array([[1.0, -2.0, 0.5]], dtype=np.float32)}
    a, b = static.Executor().run(feed=feed, fetch_list=[first, second])
    np.testing.assert_allclose(a, 3 * feed["x"] ** 2, rtol=1e-6)
    np.testing.assert_allclose(b, 6 * feed["x"], rtol=1e-6)


def test_changing_a_gradient_half_way_is_respected() -> None:
    x = layers.data("x", shape=[4], dtype="float32")
    h = layers.fc(x, 4, bias_attr=False)
    loss = layers.mean(layers.scale(h, 100.0))

    def cap(block: Any, context: dict[str, str]) -> None:
        if h.grad_name in context:
            block.append_op(
                type="clip",
                inputs={"X": [h.grad_name]},
                outputs={"Out": [h.grad_name]},
                attrs={"min": -1e-3, "max": 1e-3, "op_role": 1},
            )

    ((_, grad),) = static.append_backward(loss, callbacks=[cap])
    feed = {"x": np.ones((2, 4), dtype=np.float32)}
    (got,) = started().run(feed=feed, fetch_list=[grad])
    np.testing.assert_allclose(got, np.full((4, 4), 2e-3), rtol=1e-6)


def test_two_losses_with_an_update_between() -> None:
    x = layers.data("x", shape=[2], dtype="float32")
    w = layers.create_parameter([2, 1], "float32", name="w")
    first = layers.mean(layers.matmul(x, w))
    second = layers.mean(layers.square(layers.matmul(x, w)))
    static.optimizer.SGD(0.5).minimize(first, parameter_list=[w])
    static.optimizer.SGD(0.1).minimize(second, parameter_list=[w])
    exe = started()
    before = value("w")
    data = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
    exe.run(feed={"x": data}, fetch_list=[first])
    middle = before - 0.5 * data.mean(0)[:, None]
    # The forward ran before the first update, so the second gradient is that of the old output.
    expected = middle - 0.1 * data.T @ (2 * (data @ before) / 2)
    np.testing.assert_allclose(value("w"), expected, rtol=1e-5)


def test_loss_must_be_one_number() -> None:
    x = layers.data("x", shape=[4], dtype="float32")
    with pytest.raises(ValueError, match="reduce it to one value"):
        static.append_backward(layers.fc(x, 2))
    with pytest.raises(TypeError, match="loss of append_backward must be a Variable"):
        static.append_backward("loss")  # type: ignore[arg-type]
