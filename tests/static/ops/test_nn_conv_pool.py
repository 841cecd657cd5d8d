"""Convolution and pooling ops: values against torch, gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from op_check import check_op

RNG = np.random.default_rng(0)


def rand(*shape):
    return RNG.standard_normal(shape)


def t(array):
    return torch.from_numpy(np.ascontiguousarray(array))


@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d"])
def test_conv2d_groups(op):
    x, w = rand(1, 4, 5, 5), rand(4, 1, 3, 3)
    attrs = {"strides": [2, 1], "paddings": [1, 0], "groups": 4}
    expected = F.conv2d(t(x), t(w), stride=(2, 1), padding=(1, 0), groups=4)
    check_op(op, {"Input": x, "Filter": w}, attrs, {"Output": expected.numpy()})


def test_conv2d_bias_and_residual():
    x, w, b, r = rand(1, 2, 4, 4), rand(3, 2, 3, 3), rand(3), rand(1, 3, 2, 2)
    expected = F.conv2d(t(x), t(w), t(b)) + t(r)
    inputs = {"Input": x, "Filter": w, "Bias": b, "ResidualData": r}
    check_op("conv2d", inputs, {}, {"Output": expected.numpy()})


@pytest.mark.parametrize(
    ("attrs", "pad"),
    [
        ({"paddings": [1, 0, 0, 2]}, [0, 2, 1, 0]),
        ({"padding_algorithm": "SAME"}, [1, 1, 1, 1]),
        ({"padding_algorithm": "SAME", "strides": [2, 2]}, [1, 1, 0, 1]),
        ({"padding_algorithm": "SAME", "dilations": [2, 2]}, [1, 1, 1, 1]),
        ({"padding_algorithm": "VALID", "paddings": [1, 1]}, [0, 0, 0, 0]),
    ],
)
def test_conv2d_paddings(attrs, pad):
    x, w = rand(1, 2, 4, 5), rand(2, 2, 3, 3)
    expected = F.conv2d(F.pad(t(x), pad), t(w), stride=attrs.get("strides", 1))
    check_op("conv2d", {"Input": x, "Filter": w}, attrs, {"Output": expected.numpy()})


def test_conv2d_channels_last():
    x, w = rand(1, 4, 5, 2), rand(3, 2, 3, 3)
    expected = F.conv2d(t(x).permute(0, 3, 1, 2), t(w)).permute(0, 2, 3, 1)
    attrs = {"data_format": "NHWC"}
    check_op("conv2d", {"Input": x, "Filter": w}, attrs, {"Output": expected.numpy()})


def test_conv3d():
    x, w = rand(1, 2, 3, 4, 3), rand(2, 1, 2, 2, 2)
    attrs = {"groups": 2, "paddings": [1, 0, 0], "dilations": [1, 2, 1]}
    expected = F.conv3d(t(x), t(w), padding=(1, 0, 0), dilation=(1, 2, 1), groups=2)
    check_op("conv3d", {"Input": x, "Filter": w}, attrs, {"Output": expected.numpy()})


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"strides": [2, 2], "paddings": [1, 1]}, {"stride": 2, "padding": 1}),
        (
            {"strides": [2, 2], "paddings": [1, 1], "output_size": [8, 8]},
            {"stride": 2, "padding": 1, "output_padding": 1},
        ),
        (
            {"strides": [2, 2], "output_padding": [1, 0]},
            {"stride": 2, "output_padding": (1, 0)},
        ),
    ],
)
def test_conv2d_transpose(attrs, expected):
    x, w = rand(1, 2, 4, 4), rand(2, 3, 3, 3)
    out = F.conv_transpose2d(t(x), t(w), **expected)
    check_op("conv2d_transpose", {"Input": x, "Filter": w}, attrs, {"Output": out.numpy()})


def test_conv2d_transpose_uneven_padding():
    x, w = rand(1, 2, 3, 3), rand(2, 1, 3, 3)
    out = F.conv_transpose2d(t(x), t(w), stride=2)[:, :, 1:, :-1]
    attrs = {"strides": [2, 2], "paddings": [1, 0, 0, 1]}
    check_op("conv2d_transpose", {"Input": x, "Filter": w}, attrs, {"Output": out.numpy()})


def test_conv2d_transpose_refuses_an_impossible_size():
    x, w = rand(1, 2, 3, 3), rand(2, 1, 3, 3)
    with pytest.raises(ValueError, match="output_size"):
        check_op("conv2d_transpose", {"Input": x, "Filter": w}, {"output_size": [9, 9]})


def test_depthwise_and_3d_transpose():
    x, w = rand(1, 2, 3, 3), rand(2, 1, 2, 2)
    out = F.conv_transpose2d(t(x), t(w), groups=2)
    check_op(
        "depthwise_conv2d_transpose",
        {"Input": x, "Filter": w},
        {"groups": 2},
        {"Output": out.numpy()},
    )
    x, w = rand(1, 1, 2, 2, 3), rand(1, 2, 2, 2, 2)
    out = F.conv_transpose3d(t(x), t(w))
    check_op("conv3d_transpose", {"Input": x, "Filter": w}, {}, {"Output": out.numpy()})


@pytest.mark.parametrize(
    ("attrs", "function"),
    [
        ({"ksize": [2, 2], "strides": [2, 2]}, lambda x: F.max_pool2d(x, 2, 2)),
        (
            {"ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1]},
            lambda x: F.max_pool2d(x, 3, 2, 1),
        ),
        (
            {"ksize": [3, 3], "strides": [2, 2], "ceil_mode": True},
            lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
        ),
        ({"ksize": [1, 1], "global_pooling": True}, lambda x: x.amax((2, 3), keepdim=True)),
        ({"ksize": [2, 3], "adaptive": True}, lambda x: F.adaptive_max_pool2d(x, (2, 3))),
        (
            {"ksize": [2, 2], "strides": [2, 2], "padding_algorithm": "SAME"},
            lambda x: F.max_pool2d(F.pad(x, [0, 1, 0, 0], value=-9.0), 2, 2),
        ),
    ],
)
def test_max_pool2d(attrs, function):
    x = rand(1, 2, 6, 5)
    expected = function(t(x)).numpy()
    check_op("pool2d", {"X": x}, {"pooling_type": "max", **attrs}, {"Out": expected})


@pytest.mark.parametrize(
    ("attrs", "function"),
    [
        (
            {"ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1]},
            lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        ),
        (
            {"ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1], "exclusive": False},
            lambda x: F.avg_pool2d(x, 3, 2, 1),
        ),
        ({"ksize": [1, 1], "global_pooling": True}, lambda x: x.mean((2, 3), keepdim=True)),
        ({"ksize": [2, 3], "adaptive": True}, lambda x: F.adaptive_avg_pool2d(x, (2, 3))),
        (
            {"ksize": [3, 3], "strides": [2, 2], "ceil_mode": True},
            lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
        ),
        (
            {"ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0, 1, 0], "exclusive": False},
            lambda x: F.avg_pool2d(F.pad(x, [1, 0, 0, 0]), 2, 2),
        ),
    ],
)
def test_avg_pool2d(attrs, function):
    x = rand(1, 2, 6, 5)
    expected = function(t(x)).numpy()
    check_op("pool2d", {"X": x}, {"pooling_type": "avg", **attrs}, {"Out": expected})


def test_pool_channels_last_and_3d():
    x = rand(1, 4, 4, 2)
    expected = F.avg_pool2d(t(x).permute(0, 3, 1, 2), 2, 2).permute(0, 2, 3, 1).numpy()
    attrs = {"pooling_type": "avg", "ksize": [2, 2], "strides": [2, 2], "data_format": "NHWC"}
    check_op("pool2d", {"X": x}, attrs, {"Out": expected})
    x = rand(1, 1, 4, 3, 4)
    attrs = {"pooling_type": "max", "ksize": [2, 3, 2], "strides": [2, 1, 2]}
    check_op("pool3d", {"X": x}, attrs, {"Out": F.max_pool3d(t(x), (2, 3, 2), (2, 1, 2)).numpy()})


@pytest.mark.parametrize("adaptive", [True, False])
def test_max_pool_with_index(adaptive):
    x = rand(1, 2, 4, 6)
    if adaptive:
        out, index = F.adaptive_max_pool2d(t(x), (2, 3), return_indices=True)
        attrs = {"ksize": [2, 3], "adaptive": True}
    else:
        out, index = F.max_pool2d(t(x), 2, 2, return_indices=True)
        attrs = {"ksize": [2, 2], "strides": [2, 2]}
    expected = {"Out": out.numpy(), "Mask": index.numpy().astype("int32")}
    check_op("max_pool2d_with_index", {"X": x}, attrs, expected)
    volume = rand(1, 1, 4, 2, 2)
    out, index = F.max_pool3d(t(volume), 2, 2, return_indices=True)
    expected = {"Out": out.numpy(), "Mask": index.numpy().astype("int32")}
    attrs = {"ksize": [2, 2, 2], "strides": [2, 2, 2]}
    check_op("max_pool3d_with_index", {"X": volume}, attrs, expected)
