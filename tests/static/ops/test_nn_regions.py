"""Bins with channels of their own, marks of the strongest places, normalisation in place."""

import numpy as np
import pytest
from op_check import check_op

from fleetx import static
from fleetx.static import layers


@pytest.fixture(autouse=True)
def _program():
    programs = static.program_guard(static.Program(), static.Program())
    with programs, static.unique_name.guard(), static.scope_guard(static.Scope()):
        yield


def test_psroi_pool_averages_bins_in_their_own_channels():
    x = np.random.default_rng(0).normal(size=(2, 8, 4, 4))
    rois = np.array([[0.0, 0.0, 3.0, 3.0], [1.0, 1.0, 2.0, 2.0]])
    attrs = {"output_channels": 2, "spatial_scale": 1.0, "pooled_height": 2, "pooled_width": 2}
    parts = x.reshape(2, 2, 2, 2, 4, 4)
    expected = np.zeros((2, 2, 2, 2))
    for i, j in np.ndindex(2, 2):
        expected[0, :, i, j] = parts[0, :, i, j, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean((1, 2))
        expected[1, :, i, j] = parts[1, :, i, j, 1 + i, 1 + j]
    check_op("psroi_pool", {"X": x, "ROIs": (rois, [[1, 1]])}, attrs, {"Out": expected})


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_similarity_focus_marks_each_row_and_column_once(axis):
    slice_ = np.array([[1.0, 5.0, 2.0], [9.0, 8.0, 3.0]])
    moved = np.stack([slice_, -slice_])[None]
    marks = np.broadcast_to([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], (1, 2, 2, 3)).copy()
    marks[0, :, 0] = [0.0, 1.0, 0.0]
    check_op(
        "similarity_focus",
        {"X": np.moveaxis(moved, 1, axis).copy()},
        {"axis": axis, "indexes": [0]},
        {"Out": np.moveaxis(marks, 1, axis)},
    )


def test_similarity_focus_refuses_what_it_cannot_take():
    x = static.data("x", [2, 3, 2, 2])
    with pytest.raises(ValueError, match="axis"):
        layers.similarity_focus(x, 0, [0])
    with pytest.raises(TypeError, match="axis"):
        layers.similarity_focus(x, 1.0, [0])
    with pytest.raises(ValueError, match="indexes"):
        layers.similarity_focus(x, 1, [])


@pytest.mark.parametrize("act", [None, "identity", "leaky_relu", "elu"])
def test_normalisation_in_place_is_batch_norm_and_an_activation(act):
    x = static.data("x", [-1, 3, 4, 4])
    x.stop_gradient = False
    named = {"param_attr": static.ParamAttr("scale"), "bias_attr": static.ParamAttr("bias")}
    first = layers.inplace_abn(layers.scale(x, 1.0), act=act, act_alpha=0.3, **named)
    second = layers.batch_norm(x, **named)
    if act == "leaky_relu":
        second = layers.leaky_relu(second, alpha=0.3)
    elif act == "elu":
        second = layers.elu(second, alpha=0.3)
    grads = [static.gradients([layers.reduce_sum(v * v)], [x])[0] for v in (first, second)]
    executor = static.Executor()
    executor.run(static.default_startup_program())
    feed = {"x": np.random.default_rng(1).normal(size=(2, 3, 4, 4)).astype("float32")}
    a, b, grad_a, grad_b = executor.run(feed=feed, fetch_list=[first, second, *grads])
    np.testing.assert_allclose(a, b, rtol=1e-5)
    np.testing.assert_allclose(grad_a, grad_b, rtol=1e-4, atol=1e-5)


def test_normalisation_in_place_knows_few_activations():
    with pytest.raises(ValueError, match="act of inplace_abn"):
        layers.inplace_abn(static.data("x", [-1, 3, 4, 4]), act="relu")


def test_log_softmax():
    x = static.data("x", [2, 3])
    outs = [layers.log_softmax(x), layers.log_softmax(x, axis=0, dtype="float64")]
    value = np.array([[0.1, 0.5, -1.0], [2.0, 0.0, 0.3]], "float32")
    found = static.Executor().run(feed={"x": value}, fetch_list=outs)
    np.testing.assert_allclose(found[0], value - np.log(np.exp(value).sum(1))[:, None], rtol=1e-5)
    np.testing.assert_allclose(found[1], value - np.log(np.exp(value).sum(0)), rtol=1e-5)
    assert found[1].dtype == np.float64
