"""Gradient clipping: values, ops, groups, and what is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import small_networks as nets

from fleetx import static
from fleetx.static import append_backward, clip, layers, optimizer
from fleetx.static.graph.operator import OpRole


def gradients(pairs: Any, fetch: Any = ()) -> dict[str, Any]:
    """Run the default program; return the gradients by parameter."""
    exe = nets.started()
    values = exe.run(feed=nets.batch(), fetch_list=[g for _, g in pairs])
    return {p.name: np.asarray(v) for (p, _), v in zip(pairs, values, strict=True)}


def plain_and_clipped(apply: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the gradients of one network, and those that `apply` made of them."""
    *_, loss = nets.mlp()
    pairs = append_backward(loss)
    clipped = apply(pairs)
    names = [p.name for p, _ in pairs]
    both = gradients(
        [*pairs, *[(static.Variable(loss.block, name=f"new {p.name}"), g) for p, g in clipped]]
    )
    return {n: both[n] for n in names}, {n: both[f"new {n}"] for n in names}


def global_scale(grads: dict[str, Any], norm: float) -> float:
    total = np.sqrt(sum(np.square(g).sum() for g in grads.values()))
    return norm / max(norm, total)


def test_by_value() -> None:
    plain, clipped = plain_and_clipped(clip.GradientClipByValue(max=0.02, min=-0.01))
    for name, grad in plain.items():
        np.testing.assert_allclose(clipped[name], np.clip(grad, -0.01, 0.02), rtol=1e-6)


def test_by_norm() -> None:
    plain, clipped = plain_and_clipped(clip.GradientClipByNorm(0.05))
    for name, grad in plain.items():
        expected = grad * 0.05 / max(0.05, np.linalg.norm(grad))
        np.testing.assert_allclose(clipped[name], expected, rtol=1e-5)


@pytest.mark.parametrize("norm", [0.05, 50.0])
def test_by_global_norm(norm: float) -> None:
    plain, clipped = plain_and_clipped(clip.GradientClipByGlobalNorm(norm))
    scale = global_scale(plain, norm)
    for name, grad in plain.items():
        np.testing.assert_allclose(clipped[name], scale * grad, rtol=1e-5)


def test_need_clip_leaves_parameters_alone() -> None:
    by_norm = clip.GradientClipByGlobalNorm(0.05, need_clip=lambda p: p.name.startswith("fc_0"))
    plain, clipped = plain_and_clipped(by_norm)
    scale = global_scale({n: g for n, g in plain.items() if n.startswith("fc_0")}, 0.05)
    np.testing.assert_allclose(clipped["fc_0.w_0"], scale * plain["fc_0.w_0"], rtol=1e-5)
    np.testing.assert_array_equal(clipped["fc_1.w_0"], plain["fc_1.w_0"])


def parameters(count: int, **settings: Any) -> list[Any]:
    block = static.default_main_program().global_block()
    return [
        block.create_parameter(name=f"p{i}", shape=[2, 3], dtype="float32", **settings)
        for i in range(count)
    ]


@pytest.mark.parametrize(
    "made", [clip.ClipGradByValue(1.0), clip.ClipGradByNorm(1.0), clip.ClipGradByGlobalNorm(1.0)]
)
def test_parameters_that_need_no_clip_and_missing_gradients(made: Any) -> None:
    x, y = parameters(2, need_clip=False)
    assert made([(x, None), (x, y)]) == [(x, y)]
    assert static.default_main_program().global_block().ops == []


def test_ops_of_the_global_norm() -> None:
    x, y = parameters(2)
    pairs = clip.GradientClipByGlobalNorm(0.2)([(x, None), (x, y), (y, x)])
    assert len(pairs) == 2
    ops = x.block.ops
    assert [op.type for op in ops] == [
        *["square", "reduce_sum", "square", "reduce_sum", "sum", "sqrt"],
        *["fill_constant", "elementwise_max", "elementwise_div"],
        *["elementwise_mul", "elementwise_mul"],
    ]
    assert {op.op_role for op in ops} == {OpRole.Optimize}
    assert all(op.attr("op_namescope").startswith("/gradient_clip") for op in ops)
    # Those who distribute gradients find the clipped one.
    assert ops[0].attr("op_role_var") == ["p0", pairs[0][1].name]


def test_set_gradient_clip_for_all_and_for_some() -> None:
    def apply(pairs: Any) -> Any:
        clip.set_gradient_clip(clip.GradientClipByGlobalNorm(0.05), ["fc_0.w_0", "fc_1.w_0"])
        return clip.append_gradient_clip_ops(pairs)

    plain, clipped = plain_and_clipped(apply)
    weights = {n: g for n, g in plain.items() if n.endswith("w_0")}
    scale = global_scale(weights, 0.05)
    for name, grad in plain.items():
        expected = scale * grad if name in weights else grad
        np.testing.assert_allclose(clipped[name], expected, rtol=1e-5)


def test_groups_have_norms_of_their_own() -> None:
    def apply(pairs: Any) -> Any:
        for group in ("fc_0", "fc_1"):
            names = [p.name for p, _ in pairs if p.name.startswith(group)]
            clip.set_gradient_clip(clip.GradientClipByGlobalNorm(0.05, group_name=group), names)
        return clip.append_gradient_clip_ops(pairs)

    plain, clipped = plain_and_clipped(apply)
    for name, grad in plain.items():
        group = {n: g for n, g in plain.items() if n[:4] == name[:4]}
        np.testing.assert_allclose(clipped[name], global_scale(group, 0.05) * grad, rtol=1e-5)


def test_one_group_has_one_norm() -> None:
    *_, loss = nets.mlp()
    pairs = append_backward(loss)
    clip.set_gradient_clip(clip.GradientClipByGlobalNorm(1.0))
    clip.set_gradient_clip(clip.GradientClipByGlobalNorm(2.0), ["fc_0.w_0"])
    with pytest.raises(ValueError, match="one clip_norm, not"):
        clip.append_gradient_clip_ops(pairs)


def test_set_gradient_clip_too_late_or_beside_grad_clip_warns() -> None:
    *_, loss = nets.mlp()
    by_norm = clip.GradientClipByGlobalNorm(1.0)
    clip.set_gradient_clip(by_norm)
    with pytest.warns(UserWarning, match="grad_clip takes precedence"):
        optimizer.SGD(0.1, grad_clip=by_norm).minimize(loss)
    with pytest.warns(UserWarning, match="no effect after minimize"):
        clip.set_gradient_clip(by_norm)


def test_error_clip_bounds_a_gradient_inside_the_backward_pass() -> None:
    x = layers.data("x", shape=[3], dtype="float32")
    hidden = layers.fc(x, 3, bias_attr=False)
    loss = layers.mean(layers.scale(hidden, scale=100.0))
    hidden._set_error_clip(clip.ErrorClipByValue(max=2e-3, min=-1e-3))
    optimizer.SGD(0.1).minimize(loss)
    ops = [op.type for op in loss.block.ops]
    assert ops[ops.index("scale_grad") + 1] == "clip"
    exe = nets.started()
    feed = {"x": np.ones((2, 3), dtype=np.float32)}
    grad, weight_grad = exe.run(feed=feed, fetch_list=[f"{hidden.name}@GRAD", "fc_0.w_0@GRAD"])
    np.testing.assert_allclose(grad, np.full((2, 3), 2e-3), rtol=1e-6)
    np.testing.assert_allclose(weight_grad, np.full((3, 3), 4e-3), rtol=1e-6)


def test_error_clip_bounds_the_sum_of_partial_gradients() -> None:
    x = layers.data("x", shape=[3], dtype="float32")
    hidden = layers.fc(x, 3, bias_attr=False)
    hidden._set_error_clip(clip.ErrorClipByValue(0.1))
    loss = layers.mean(layers.scale(hidden, scale=0.54) + layers.scale(hidden, scale=0.54))
    optimizer.SGD(0.1).minimize(loss)
    ops = [op.type for op in loss.block.ops]
    assert ops.count("clip") == 1
    assert ops[ops.index("clip") - 1] == "sum"
    feed = {"x": np.ones((2, 3), dtype=np.float32)}
    (grad,) = nets.started().run(feed=feed, fetch_list=["fc_0.w_0@GRAD"])
    np.testing.assert_allclose(grad, np.full((3, 3), 0.2), rtol=1e-6)  # each part is 0.09


def test_texts() -> None:
    assert str(clip.ErrorClipByValue(2)) == "ByValue, min=-2.000000, max=2.000000"
    assert str(clip.GradientClipByNorm(2)) == "Gradient Clip By Norm, clip_norm=2.000000"
    value = "Gradient Clip By Value, min = -2.000000, max=2.000000"
    assert str(clip.GradientClipByValue(2)) == value
    norm = "Gradient Clip By GlobalNorm, global_norm=2.000000"
    assert str(clip.GradientClipByGlobalNorm(2)) == norm


def test_wrong_use_is_refused() -> None:
    wrong: Any = "all"
    with pytest.raises(TypeError, match="need_clip must be a function"):
        clip.GradientClipByNorm(1.0, need_clip=wrong)
    with pytest.raises(ValueError, match="max of GradientClipByValue must be positive"):
        clip.GradientClipByValue(-1.0)
    with pytest.raises(TypeError, match="clip of set_gradient_clip must be a gradient clip"):
        clip.set_gradient_clip(wrong)
    with pytest.raises(TypeError, match="must hold Parameters or their names, not int"):
        clip.set_gradient_clip(clip.GradientClipByNorm(1.0), [3])
    (param,) = parameters(1)
    param.gradient_clip_attr = wrong
    with pytest.raises(TypeError, match="gradient clip of parameter 'p0'"):
        clip.append_gradient_clip_ops([(param, param)])
    param._set_error_clip(3)
    with pytest.raises(TypeError, match="error_clip of variable 'p0'"):
        clip.error_clip_callback(param.block, {"p0@GRAD": "p0"})
