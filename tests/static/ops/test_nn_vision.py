"""Ops on images: values against torch or NumPy, gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from op_check import check_op

from fleetx import static

RNG = np.random.default_rng(3)


def rand(*shape):
    return RNG.standard_normal(shape)


def t(array):
    return torch.from_numpy(np.ascontiguousarray(array))


def linear_by_hand(x, size, ratios, nearest=False):
    """Resize the last two axes reading from ratio * i, one axis after the other."""
    for axis, (out, ratio) in enumerate(zip(size, ratios, strict=True), start=2):
        at = np.arange(out) * ratio
        if nearest:
            x = np.take(x, (at + 0.5).astype(int), axis)
            continue
        low = at.astype(int)
        high = np.minimum(low + 1, x.shape[axis] - 1)
        share = (at - low).reshape([-1 if i == axis else 1 for i in range(4)])
        x = np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share
    return x


@pytest.mark.parametrize(
    ("op", "attrs", "expected"),
    [
        (
            "bilinear_interp",
            {"align_corners": True},
            lambda x: F.interpolate(t(x), (5, 6), mode="bilinear", align_corners=True).numpy(),
        ),
        (
            "bilinear_interp",
            {"align_corners": False, "align_mode": 0},
            lambda x: F.interpolate(t(x), (5, 6), mode="bilinear", align_corners=False).numpy(),
        ),
        (
            "bilinear_interp",
            {"align_corners": False, "align_mode": 1},
            lambda x: linear_by_hand(x, (5, 6), (3 / 5, 4 / 6)),
        ),
        (
            "nearest_interp",
            {"align_corners": False},
            lambda x: F.interpolate(t(x), (5, 6), mode="nearest").numpy(),
        ),
        (
            "nearest_interp",
            {"align_corners": True},
            lambda x: linear_by_hand(x, (5, 6), (2 / 4, 3 / 5), nearest=True),
        ),
        (
            "bicubic_interp_v2",
            {"align_corners": False},
            lambda x: F.interpolate(t(x), (5, 6), mode="bicubic").numpy(),
        ),
    ],
)
def test_interpolation_to_a_size(op, attrs, expected):
    x = rand(1, 1, 3, 4)
    attrs = {"out_h": 5, "out_w": 6, **attrs}
    check_op(op, {"X": x}, attrs, {"Out": expected(x)})
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    wanted = expected(x).transpose(0, 2, 3, 1)
    check_op(op, {"X": last}, {**attrs, "data_layout": "NHWC"}, {"Out": wanted}, grad_of=[])


def test_interpolation_by_a_factor_or_a_tensor():
    x = rand(1, 2, 3, 4)
    wanted = F.interpolate(t(x), scale_factor=2.0, mode="nearest").numpy()
    attrs = {"scale": 2.0, "align_corners": False}
    check_op("nearest_interp", {"X": x}, attrs, {"Out": wanted})
    check_op("nearest_interp_v2", {"X": x}, {**attrs, "scale": [2.0, 2.0]}, {"Out": wanted})
    size = np.array([6, 8], "int32")
    attrs = {"align_corners": False}
    check_op("nearest_interp", {"X": x, "OutSize": size}, attrs, {"Out": wanted})
    parts = [np.array([6], "int32"), np.array([8], "int32")]
    check_op("nearest_interp", {"X": x, "SizeTensor": parts}, attrs, {"Out": wanted})


def test_linear_and_trilinear_interpolation():
    x = rand(1, 1, 4)
    wanted = F.interpolate(t(x), 7, mode="linear", align_corners=True).numpy()
    check_op("linear_interp_v2", {"X": x}, {"out_w": 7}, {"Out": wanted})
    x = rand(1, 1, 2, 2, 3)
    wanted = F.interpolate(t(x), (3, 3, 4), mode="trilinear", align_corners=True).numpy()
    attrs = {"out_d": 3, "out_h": 3, "out_w": 4}
    check_op("trilinear_interp", {"X": x}, attrs, {"Out": wanted})


def test_shuffles():
    x = rand(1, 4, 2, 2)
    wanted = F.pixel_shuffle(t(x), 2).numpy()
    check_op("pixel_shuffle", {"X": x}, {"upscale_factor": 2}, {"Out": wanted})
    check_op("pixel_unshuffle", {"X": wanted}, {"downscale_factor": 2}, {"Out": x})
    wanted = x[:, [0, 2, 1, 3]]
    check_op("shuffle_channel", {"X": x}, {"group": 2}, {"Out": wanted})
    check_op("channel_shuffle", {"X": x}, {"groups": 2}, {"Out": wanted})


def test_space_to_depth_has_fluids_order():
    """The first values are what Paddle 1.8.5 gives for 0, 1, 2, ..."""
    x = np.arange(64.0).reshape(1, 4, 4, 4)
    found = check_op("space_to_depth", {"X": x}, {"blocksize": 2})["Out"][0]
    assert found.shape == (1, 16, 2, 2)
    start = [0, 16, 1, 17, 2, 18, 3, 19, 32, 48, 33, 49, 34, 50, 35, 51]
    assert found.ravel()[:16].tolist() == start
    with pytest.raises(static.ShapeError, match="divisible"):
        check_op("space_to_depth", {"X": x}, {"blocksize": 3})


def test_temporal_shift():
    x = rand(4, 4, 1, 1)  # two clips of two frames
    wanted = x.copy()
    wanted[[0, 2], 0] = 0.0
    wanted[[1, 3], 0] = x[[0, 2], 0]
    wanted[[0, 2], 1] = x[[1, 3], 1]
    wanted[[1, 3], 1] = 0.0
    check_op("temporal_shift", {"X": x}, {"seg_num": 2}, {"Out": wanted})


def test_affine_ops():
    x, scale, bias = rand(2, 3, 2, 2), rand(3), rand(3)
    wanted = x * scale[:, None, None] + bias[:, None, None]
    check_op("affine_channel", {"X": x, "Scale": scale, "Bias": bias}, {}, {"Out": wanted})
    theta = rand(2, 2, 3)
    grid = F.affine_grid(t(theta), (2, 3, 4, 5), align_corners=True).numpy()
    attrs = {"output_shape": [2, 3, 4, 5]}
    check_op("affine_grid", {"Theta": theta}, attrs, {"Output": grid})
    shape = np.array([2, 3, 4, 5], "int32")
    check_op("affine_grid", {"Theta": theta, "OutputShape": shape}, {}, {"Output": grid})


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_grid_sampler(mode):
    x, grid = rand(1, 2, 3, 3), RNG.uniform(-0.9, 0.9, (1, 2, 2, 2))
    wanted = F.grid_sample(t(x), t(grid), mode=mode, align_corners=True).numpy()
    check_op("grid_sampler", {"X": x, "Grid": grid}, {"mode": mode}, {"Output": wanted})


def test_unfold_and_fold():
    x = rand(1, 2, 4, 4)
    attrs = {"kernel_sizes": [2, 3], "strides": [1, 2], "paddings": [1, 0, 0, 1]}
    attrs["dilations"] = [1, 1]
    wanted = F.unfold(F.pad(t(x), [0, 1, 1, 0]), (2, 3), stride=(1, 2))
    check_op("unfold", {"X": x}, attrs, {"Y": wanted.numpy()})
    back = F.fold(wanted, (5, 5), (2, 3), stride=(1, 2))[:, :, 1:, :4].numpy()
    check_op("fold", {"X": wanted.numpy()}, {**attrs, "output_sizes": [4, 4]}, {"Y": back})


def test_random_crop_cuts_pieces_out():
    x = np.arange(2 * 5 * 6).reshape(2, 5, 6).astype("float64")
    out = check_op("random_crop", {"X": x}, {"shape": [2, 3]})["Out"][0]
    assert out.shape == (2, 2, 3)
    for piece, whole in zip(out, x, strict=True):
        row, column = np.argwhere(whole == piece[0, 0])[0]
        np.testing.assert_array_equal(piece, whole[row : row + 2, column : column + 3])


def test_add_position_encoding():
    x = rand(2, 3, 4)
    angle = np.arange(3)[:, None] / 10000 ** np.array([0.0, 1.0])
    wanted = 2 * x + 0.5 * np.concatenate([np.sin(angle), np.cos(angle)], 1)
    attrs = {"alpha": 2.0, "beta": 0.5}
    check_op("add_position_encoding", {"X": x}, attrs, {"Out": wanted})


BOXES = np.array([[0.0, 0.0, 5.0, 4.0], [2.0, 1.0, 3.0, 9.0], [-2.0, 0.0, 20.0, 3.0]])


def test_roi_align_averages_samples():
    x = rand(2, 2, 4, 5)
    attrs = {"pooled_height": 2, "pooled_width": 1, "spatial_scale": 0.5, "sampling_ratio": 2}
    found = check_op("roi_align", {"X": x, "ROIs": (BOXES, [[2, 1]])}, attrs)["Out"][0]
    # the first box is (0, 0, 2.5, 2): rows at 0.25, 0.75 | 1.25, 1.75 and columns at 0.625, 1.875
    rows, columns = np.array([0.25, 0.75]), np.array([0.625, 1.875])
    expected = np.zeros(2)
    for y in rows:
        for c in columns:
            y0, c0 = int(y), int(c)
            dy, dc = y - y0, c - c0
            corners = x[0, :, y0 : y0 + 2, c0 : c0 + 2]
            weights = np.outer([1 - dy, dy], [1 - dc, dc])
            expected += (corners * weights).sum((1, 2)) / 4
    np.testing.assert_allclose(found[0, :, 0, 0], expected)
    counts = np.array([2, 1], "int32")
    again = check_op("roi_align", {"X": x, "ROIs": BOXES, "RoisNum": counts}, attrs, grad_of=[])
    np.testing.assert_allclose(again["Out"][0], found)


def test_roi_pool_takes_maxima():
    x = rand(2, 2, 4, 5)
    attrs = {"pooled_height": 2, "pooled_width": 2}
    inputs = {"X": x, "ROIs": (BOXES, [[1, 2]])}
    found = check_op("roi_pool", inputs, attrs, counts={"Argmax": 1})
    out, where = found["Out"][0], found["Argmax"][0]
    np.testing.assert_allclose(out[0, :, 0, 0], x[0, :, :3, :3].max((1, 2)))
    kept = where >= 0
    images = np.repeat([0, 1, 1], 8).reshape(3, 2, 2, 2)
    channels = np.broadcast_to(np.arange(2)[:, None, None], (3, 2, 2, 2))
    values = x.reshape(2, 2, -1)[images[kept], channels[kept], where[kept]]
    np.testing.assert_allclose(out[kept], values)
    assert (out[~kept] == 0).all()
    with pytest.raises(Exception, match="3 boxes"):
        check_op("roi_pool", {"X": x, "ROIs": BOXES, "RoisNum": np.array([1, 1])}, attrs)


@pytest.mark.parametrize(
    ("op", "shape", "sizes"),
    [
        ("linear_interp", (1, 2, 4), {"out_w": 7}),
        ("bicubic_interp", (1, 2, 4, 4), {"out_h": 6, "out_w": 5}),
        ("bilinear_interp_v2", (1, 2, 3, 4), {"out_h": 6, "out_w": 5}),
        ("trilinear_interp_v2", (1, 1, 2, 3, 2), {"out_d": 3, "out_h": 4, "out_w": 3}),
    ],
)
def test_gradients_of_every_form_of_interpolation(op, shape, sizes):
    x = np.random.default_rng(4).standard_normal(shape)
    layout = {3: "NCW", 4: "NCHW", 5: "NCDHW"}[len(shape)]
    check_op(op, {"X": x}, {**sizes, "data_layout": layout, "align_corners": True})
