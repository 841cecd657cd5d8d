"""Layers of the first generation: ops and names of Paddle 1.8.5; wrong arguments are refused."""

from __future__ import annotations

import numpy as np
import pytest
from run_program import Built, compute

import fleetx.static.layers as L
from fleetx import static

RNG = np.random.default_rng(5)


def rand(*shape):
    return RNG.standard_normal(shape).astype("float32")


def listing(build, **shapes):
    """Return [type, outputs] of a program's ops."""
    main = static.Program()
    with static.program_guard(main, static.Program()), static.unique_name.guard():
        block = main.global_block()
        inputs = {
            name: block.create_var(
                name=name, shape=shape, dtype="int64" if name in "yi" else "float32", is_data=True
            )
            for name, shape in shapes.items()
        }
        build(**inputs)
        return [(op.type, *sorted(op.output_arg_names)) for op in block.ops]


def test_fc_of_several_inputs():
    found = listing(lambda x, z: L.fc([x, z], 3, act="relu"), x=[-1, 4], z=[-1, 5])
    assert found == [
        ("mul", "fc_0.tmp_0"),
        ("mul", "fc_0.tmp_1"),
        ("sum", "fc_0.tmp_2"),
        ("elementwise_add", "fc_0.tmp_3"),
        ("relu", "fc_0.tmp_4"),
    ]


def test_fc_flattens_from_a_dimension_on():
    x = rand(2, 3, 4)
    built = Built(lambda x: L.fc(x, 5, num_flatten_dims=2), {"x": x})
    weight, bias = built.get("fc_0.w_0"), built.get("fc_0.b_0")
    assert weight.shape == (4, 5)
    np.testing.assert_allclose(built.run()[0], x @ weight + bias, rtol=1e-5, atol=1e-6)
    built = Built(lambda x: L.fc(x, 5, bias_attr=False), {"x": x})
    expected = x.reshape(2, 12) @ built.get("fc_0.w_0")
    np.testing.assert_allclose(built.run()[0], expected, rtol=1e-5, atol=1e-6)


def test_convolution_and_norm_names():
    def build(x):
        y = L.conv2d(x, 4, 3, act="relu")
        return L.batch_norm(y, act="relu")

    found = listing(build, x=[-1, 3, 8, 8])
    assert found == [
        ("conv2d", "conv2d_0.tmp_0"),
        ("elementwise_add", "conv2d_0.tmp_1"),
        ("relu", "conv2d_0.tmp_2"),
        (
            "batch_norm",
            "batch_norm_0.tmp_0",
            "batch_norm_0.tmp_1",
            "batch_norm_0.tmp_2",
            "batch_norm_0.w_1",
            "batch_norm_0.w_2",
        ),
        ("relu", "batch_norm_0.tmp_3"),
    ]


def test_depthwise_convolution_needs_no_cudnn():
    found = listing(
        lambda x: L.conv2d(x, 6, 3, groups=3, use_cudnn=False, bias_attr=False), x=[-1, 3, 8, 8]
    )
    assert found == [("depthwise_conv2d", "depthwise_conv2d_0.tmp_0")]


def test_loss_and_metric_names():
    def build(x, y):
        L.cross_entropy(L.softmax(x), y)
        L.accuracy(x, y)

    assert listing(build, x=[-1, 4], y=[-1, 1]) == [
        ("softmax", "softmax_0.tmp_0"),
        (
            "cross_entropy2",
            "cross_entropy2_0.tmp_0",
            "cross_entropy2_0.tmp_1",
            "cross_entropy2_0.tmp_2",
        ),
        ("top_k", "top_k_0.tmp_0", "top_k_0.tmp_1"),
        ("accuracy", "accuracy_0.tmp_0", "accuracy_0.tmp_1", "accuracy_0.tmp_2"),
    ]


def test_group_norm_has_parameters_only_where_asked():
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = main.global_block().create_var(name="x", shape=[-1, 4, 2, 2], dtype="float32")
        L.group_norm(x, 2)
        assert main.all_parameters() == []
        L.group_norm(x, 2, param_attr=True, bias_attr=True)
        assert len(main.all_parameters()) == 2


def test_transposed_convolution_finds_its_filter_size():
    built = Built(
        lambda x: L.conv2d_transpose(x, 2, output_size=[9, 8], stride=2), {"x": rand(1, 3, 4, 4)}
    )
    assert built.get("conv2d_transpose_0.w_0").shape == (3, 2, 3, 2)
    assert built.run()[0].shape == (1, 2, 9, 8)


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_weight_norm(dim):
    x = rand(2, 4)
    attr = static.WeightNormParamAttr(dim=dim, name="w")
    built = Built(lambda x: L.fc(x, 3, param_attr=attr, bias_attr=False), {"x": x})
    v, g = built.get("w_v"), built.get("w_g")
    axes = None if dim is None else 1 - dim
    length = np.sqrt(np.square(v).sum(axes, keepdims=True))
    np.testing.assert_allclose(g, length.reshape(g.shape), rtol=1e-5)
    np.testing.assert_allclose(built.run()[0], x @ v, rtol=1e-4, atol=1e-5)
    built.set("w_g", (2 * g).astype("float32"))
    np.testing.assert_allclose(built.run()[0], 2 * x @ v, rtol=1e-4, atol=1e-5)


def test_data_norm_starts_from_given_sums():
    x = rand(3, 2)
    given = {"batch_size": 4.0, "batch_sum": 8.0, "batch_square": 16.0}
    found = compute(lambda x: L.data_norm(x, name="d", param_attr=given), x=x)
    np.testing.assert_allclose(found, (x - 2.0) * 0.5, rtol=1e-6)


def test_center_loss_moves_its_centres():
    x, y = rand(4, 3), np.array([[0], [1], [1], [0]])
    built = Built(
        lambda x, y: L.center_loss(x, y, 2, 0.5, static.ParamAttr(name="centers")), {"x": x, "y": y}
    )
    before = built.get("centers")
    built.run()
    assert not np.allclose(built.get("centers"), before)


@pytest.mark.parametrize("sampler", ["uniform", "log_uniform", "custom_dist"])
def test_nce_layer(sampler):
    dist = [0.25, 0.25, 0.5] if sampler == "custom_dist" else None
    cost = compute(
        lambda x, y: L.nce(x, y, 3, num_neg_samples=4, sampler=sampler, custom_dist=dist),
        x=rand(5, 2),
        y=np.array([[0], [1], [2], [0], [1]]),
    )
    assert cost.shape == (5, 1)
    assert (cost > 0).all()


def test_hsigmoid_and_sampled_softmax_layers():
    x, y = rand(5, 4), np.array([[0], [1], [2], [3], [5]])
    assert compute(lambda x, y: L.hsigmoid(x, y, 6), x=x, y=y).shape == (5, 1)
    found = compute(lambda x, y: L.sampled_softmax_with_cross_entropy(x, y, 3), x=rand(5, 8), y=y)
    assert found.shape == (5, 1)


def test_resizing_layers():
    x = rand(1, 2, 4, 6)
    assert compute(lambda x: L.resize_bilinear(x, [8, 9]), x=x).shape == (1, 2, 8, 9)
    assert compute(lambda x: L.resize_nearest(x, scale=2.0), x=x).shape == (1, 2, 8, 12)
    assert compute(lambda x: L.image_resize_short(x, 2), x=x).shape == (1, 2, 2, 3)
    volume = rand(1, 1, 2, 2, 2)
    assert compute(lambda x: L.resize_trilinear(x, [3, 4, 5]), x=volume).shape == (1, 1, 3, 4, 5)
    signal = np.array([[[0.0, 2.0, 4.0]]], "float32")
    found = compute(lambda x: L.resize_linear(x, [5]), x=signal)
    np.testing.assert_allclose(found, [[[0, 1, 2, 3, 4]]], atol=1e-6)
    found = compute(lambda x: L.resize_linear(x, scale=2.0, data_format="NWC"), x=signal)
    assert found.shape == (1, 2, 3)
    found = compute(lambda x, s: L.image_resize(x, [s, 5]), x=x, s=np.array([3], "int32"))
    assert found.shape == (1, 2, 3, 5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: L.fc(3, 4), TypeError, "fc"),
        (lambda x: L.conv2d(x, 4, 3), ValueError, "channels"),
        (lambda x: L.conv2d(3, 4, 3), TypeError, "input"),
        (lambda x: L.pool2d(x), ValueError, "pool_size"),
        (lambda x: L.pool2d(x, 2, "sum"), ValueError, "pool_type"),
        (lambda x: L.pool2d(x, 2, use_cudnn=1), TypeError, "use_cudnn"),
        (lambda x: L.pool2d(x, 2, pool_padding="VALID", ceil_mode=True), ValueError, "ceil_mode"),
        (lambda x: L.batch_norm(x, bias_attr=False), ValueError, "bias_attr"),
        (lambda x: L.batch_norm(x, data_layout="CHW"), ValueError, "data_layout"),
        (lambda x: L.embedding(x, [3, 4]), TypeError, "input"),
        (lambda x: L.image_resize(x), ValueError, "out_shape or scale"),
        (lambda x: L.image_resize(x, [1, 2], resample="CUBE"), ValueError, "resample"),
        (lambda x: L.adaptive_pool2d(x, 2, "avg", require_index=True), ValueError, "index"),
        (lambda x: L.lrn(L.flatten(x)), ValueError, "4 dimensions"),
        (lambda x: L.hsigmoid(x, x, 3), TypeError, "label"),
        (lambda x: L.label_smooth(x, epsilon=2.0), ValueError, "epsilon"),
        (lambda x: L.conv2d_transpose(x, 2), ValueError, "channels"),
        (lambda x: L.dropout(3, 0.5), TypeError, "dropout"),
    ],
)
def test_wrong_arguments_are_refused_in_words(call, error, message):
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = main.global_block().create_var(name="x", shape=[2, -1, 4, 4], dtype="float32")
        with pytest.raises(error, match=message):
            call(x)


def test_a_shape_error_names_layer_op_and_shapes():
    main = static.Program()
    with static.program_guard(main, static.Program()), static.unique_name.guard():
        x = main.global_block().create_var(name="x", shape=[-1, 3, 2, 2], dtype="float32")
        with pytest.raises(static.ShapeError, match=r"conv2d_0.*conv2d.*\(-1, 3, 2, 2\)"):
            L.conv2d(x, 4, 5)
