"""Precise, deformable and perspective reading of regions, and masks of polygons."""

import math

import numpy as np
import pytest
from op_check import check_op

from fleetx import static
from fleetx.static import layers
from fleetx.static.errors import ShapeError
from fleetx.static.ops.mask_labels import draw_polygon


@pytest.fixture(autouse=True)
def _program():
    programs = static.program_guard(static.Program(), static.Program())
    with programs, static.unique_name.guard(), static.scope_guard(static.Scope()):
        yield


def values(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def interpolated(image, y, x):
    """Return [channels] of an image at a place; zeros lie around it."""
    height, width = image.shape[1:]
    total = np.zeros(len(image))
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            if 0 <= row < height and 0 <= column < width:
                total += image[:, row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def test_precise_pooling_is_the_mean_of_the_interpolated_image():
    x = values(2, 2, 4, 5)
    rois = np.array([[1.0, 2.2, 7.0, 9.4], [-3.0, 0.4, 9.4, 5.2]])
    found = check_op(
        "prroi_pool",
        {"X": x, "ROIs": (rois, [[0, 2]])},
        {"spatial_scale": 0.5, "pooled_height": 2, "pooled_width": 3},
        grad_rtol=1e-4,
        grad_atol=1e-6,
    )["Out"][0]
    steps = (np.arange(30) + 0.5) / 30
    for box, out in zip(rois * 0.5, found, strict=True):
        left, top, right, bottom = box
        for i, j in np.ndindex(2, 3):
            ys = top + (bottom - top) / 2 * (i + steps)
            xs = left + (right - left) / 3 * (j + steps)
            mean = np.mean([interpolated(x[1], y, x_) for y in ys for x_ in xs], 0)
            np.testing.assert_allclose(out[:, i, j], mean, atol=5e-3)


def test_precise_pooling_by_counts_of_boxes():
    x, rois = values(2, 1, 4, 4), np.array([[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 1.0, 3.0]])
    inputs = {"X": x, "ROIs": rois, "BatchRoINums": np.array([1, 1])}
    found = check_op("prroi_pool", inputs, {}, grad_of=["X"])["Out"][0].reshape(-1)
    weights = np.outer([0.5, 1, 0.5, 0], [0.5, 1, 0.5, 0]) / 4
    np.testing.assert_allclose(found, [(x[0, 0] * weights).sum(), 0.0])


def deformed(x, box, offsets, bins, groups, parts, samples, std):
    """Return the values and counts of one box with the loops of the paper's kernel."""
    classes, channels = len(offsets) // 2, x.shape[0] // (groups[0] * groups[1])
    left, top = (math.floor(v + 0.5) * 0.5 - 0.5 for v in box[:2])
    width, height = (
        max((math.floor(v + 0.5) + 1) * 0.5 - 0.5 - s, 0.1)
        for v, s in zip(box[2:], (left, top), strict=True)
    )
    out, counts = np.zeros((channels, *bins)), np.zeros((channels, *bins))
    for c, i, j in np.ndindex(channels, *bins):
        kind = c // (channels // classes)
        part = i * parts[0] // bins[0], j * parts[1] // bins[1]
        move_x, move_y = offsets[2 * kind][part] * std, offsets[2 * kind + 1][part] * std
        channel = (c * groups[0] + i * groups[0] // bins[0]) * groups[1] + j * groups[1] // bins[1]
        for a, b in np.ndindex(samples, samples):
            at_y = top + height / bins[0] * (i + a / samples) + move_y * height
            at_x = left + width / bins[1] * (j + b / samples) + move_x * width
            if -0.5 <= at_y <= x.shape[1] - 0.5 and -0.5 <= at_x <= x.shape[2] - 0.5:
                at_y, at_x = np.clip(at_y, 0, x.shape[1] - 1), np.clip(at_x, 0, x.shape[2] - 1)
                out[c, i, j] += interpolated(x[channel : channel + 1], at_y, at_x)[0]
                counts[c, i, j] += 1
    return out / np.maximum(counts, 1), counts


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "parts"), [((1, 1), (2, 3)), ((2, 2), (1, 2))])
def test_deformable_pooling(groups, parts):
    channels = 4 // (groups[0] * groups[1])
    x, offsets = values(1, 4, 4, 5), values(2, min(channels, 2) * 2, *parts)
    rois = np.array([[0.0, 1.0, 7.0, 6.0], [4.0, 2.0, 9.0, 8.0]])
    settings = ((2, 3), groups, parts, 2, 0.3)
    found = [deformed(x[0], box, o, *settings) for box, o in zip(rois, offsets, strict=True)]
    attrs = {"spatial_scale": 0.5, "output_dim": channels}
    attrs |= {"group_size": [*groups], "part_size": [*parts], "sample_per_part": 2}
    attrs |= {"pooled_height": 2, "pooled_width": 3, "trans_std": 0.3}
    inputs = {"Input": x, "ROIs": (rois, [[2]]), "Trans": offsets}
    expected = {
        "Output": np.stack([f[0] for f in found]),
        "TopCount": np.stack([f[1] for f in found]),
    }
    check_op(
        "deformable_psroi_pooling", inputs, attrs, expected, grad_from=["Output"], grad_atol=1e-6
    )


def test_deformable_pooling_without_offsets_ignores_them():
    x, rois = values(1, 2, 5, 6), np.array([[0.0, 0.0, 3.0, 3.0]])
    inputs = {"Input": x, "ROIs": (rois, [[1]])}
    attrs = {"output_dim": 2, "no_trans": True, "pooled_height": 2, "pooled_width": 2}
    found = [
        check_op("deformable_psroi_pooling", {**inputs, "Trans": t}, attrs, grad_of=["Input"])
        for t in (np.zeros((1, 2, 1, 1)), np.ones((1, 2, 1, 1)))
    ]
    # a bin begins at -0.5 + 2 * its number, and -0.5 counts as 0
    places = [(0.0, 0.0), (0.0, 1.5), (1.5, 0.0), (1.5, 1.5)]
    expected = np.stack([interpolated(x[0], *place) for place in places], -1).reshape(1, 2, 2, 2)
    for each in found:
        np.testing.assert_allclose(each["Output"][0], expected)


def test_a_rectangle_is_projected_onto_itself():
    x = values(1, 2, 6, 7)
    quad = np.array([[1.0, 1.0, 4.0, 1.0, 4.0, 3.0, 1.0, 3.0]])
    attrs = {"transformed_height": 3, "transformed_width": 5, "spatial_scale": 1.0}
    out = np.zeros((1, 2, 3, 5))
    out[..., :4] = x[:, :, 1:4, 1:5]
    mask = np.zeros((1, 1, 3, 5), "int32")
    mask[..., :4] = 1
    matrix = np.array([[1.0, 0, 1, 0, 1, 1, 0, 0, 1]])
    inputs = {"X": x, "ROIs": (quad, [[1]])}
    expected = {"Out": out, "Mask": mask, "TransformMatrix": matrix}
    check_op("roi_perspective_transform", inputs, attrs, expected, grad_from=["Out"])


def test_a_quadrangle_is_projected_onto_a_rectangle():
    """The matrix maps the rectangle's corners onto the quadrangle's; pixels are interpolated."""
    x = values(1, 1, 8, 9)
    corners = np.array([[1.0, 1.5], [6.5, 0.5], [7.0, 6.0], [0.5, 5.0]])
    attrs = {"transformed_height": 4, "transformed_width": 4, "spatial_scale": 1.0}
    inputs = {"X": x, "ROIs": (corners.reshape(1, 8), [[1]])}
    found = check_op("roi_perspective_transform", inputs, attrs, grad_from=["Out"])
    matrix = found["TransformMatrix"][0].reshape(3, 3)
    for corner, pixel in zip(corners, ((0, 0), (3, 0), (3, 3), (0, 3)), strict=True):
        u, v, w = matrix @ [*pixel, 1]
        np.testing.assert_allclose([u / w, v / w], corner, atol=1e-4)
    for row, column in ((1, 1), (1, 2), (2, 1), (2, 2)):
        u, v, w = matrix @ [column, row, 1]
        expected = interpolated(x[0], v / w, u / w)[0]
        np.testing.assert_allclose(found["Out"][0][0, 0, row, column], expected)
        assert found["Mask"][0][0, 0, row, column] == 1


def test_layers_of_regions():
    x, boxes = static.data("x", [-1, 8, 6, 6]), static.data("r", [-1, 4], lod_level=1)
    offsets, quads = static.data("t", [-1, 2, 2, 2]), static.data("q", [-1, 8], lod_level=1)
    assert layers.prroi_pool(x, boxes, 1.0, 3, 4).shape == (-1, 8, 3, 4)
    pooled = layers.deformable_roi_pooling(
        x,
        boxes,
        offsets,
        pooled_height=2,
        pooled_width=2,
        group_size=[2, 2],
        position_sensitive=True,
    )
    assert pooled.shape == (-1, 2, 2, 2)
    shapes = [v.shape for v in layers.roi_perspective_transform(x, quads, 3, 4)]
    assert shapes == [(-1, 8, 3, 4), (-1, 1, 3, 4), (-1, 9)]
    with pytest.raises(TypeError, match="spatial_scale"):
        layers.prroi_pool(x, boxes, "1")
    with pytest.raises(ShapeError, match="quadrangles"):
        layers.roi_perspective_transform(x, boxes, 3, 4)
    with pytest.raises(ShapeError, match="need 32 input channels"):
        layers.deformable_roi_pooling(x, boxes, offsets, group_size=[2, 2])


def test_a_polygon_is_drawn_by_the_centres_of_pixels():
    square = np.array([[1.0, 2.0], [4.0, 2.0], [4.0, 5.0], [1.0, 5.0]], "float32")
    expected = np.zeros((6, 6), bool)
    expected[2:5, 1:4] = True
    assert (draw_polygon(square, 6) == expected).all()
    assert (draw_polygon(square[::-1], 6) == expected).all()
    triangle = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]], "float32")
    row, column = np.indices((8, 8)) + 0.5
    drawn = draw_polygon(triangle, 8)
    apart = abs(row + column - 8) > 0.3
    assert (drawn == (row + column < 8))[apart].all()


def masks(labels, crowd=(0, 0, 0)):
    """Draw objects of one and two squares in an image scaled by 2, and one in a second image."""
    square = np.array([[0, 0], [4, 0], [4, 4], [0, 4]], "float32")
    points = np.concatenate([square, square + 6, square + [6, 0], square + 1]).astype("float32")
    boxes = np.array([[0, 0, 8, 8], [12, 0, 20, 20], [0, 0, 12, 12]], "float32")
    inputs = {
        "ImInfo": np.array([[20, 20, 2.0], [20, 20, 1.0]], "float32"),
        "GtClasses": (np.array([[1], [2], [1]], "int32"), [[2, 1]]),
        "IsCrowd": (np.array(crowd, "int32").reshape(3, 1), [[2, 1]]),
        "GtSegms": (points, [[2, 1], [1, 2, 1], [4, 4, 4, 4]]),
        "Rois": (boxes, [[2, 1]]),
        "LabelsInt32": (np.array(labels, "int32").reshape(3, 1), [[2, 1]]),
    }
    attrs = {"num_classes": 3, "resolution": 5}
    return boxes, check_op("generate_mask_labels", inputs, attrs)


def test_masks_of_objects():
    boxes, found = masks([1, 2, 1])
    np.testing.assert_allclose(found["MaskRois"][0], boxes)
    assert found["RoiHasMaskInt32"][0].tolist() == [[0], [1], [0]]
    drawn = found["MaskInt32"][0].reshape(3, 3, 5, 5)
    assert (drawn[0, 1] == 1).all()
    assert (drawn[0, [0, 2]] == -1).all()
    # the second box, of 4 x 10, has squares at the top and at the bottom
    assert drawn[1, 2].tolist() == [[1] * 5, [1] * 5, [0] * 5, [1] * 5, [1] * 5]
    assert (drawn[1, :2] == -1).all()
    # the third one, of 12 x 12, has a square from 1 to 5 in it
    assert drawn[2, 1].tolist() == [[1, 1, 0, 0, 0]] * 2 + [[0] * 5] * 3


def test_an_image_without_objects_keeps_one_box():
    boxes, found = masks([0, 0, 1])
    np.testing.assert_allclose(found["MaskRois"][0], boxes[[0, 2]])
    assert found["RoiHasMaskInt32"][0].tolist() == [[0], [0]]
    assert (found["MaskInt32"][0][0] == -1).all()


def test_boxes_of_objects_need_objects():
    with pytest.raises(RuntimeError, match="in an image without any"):
        masks([1, 2, 1], crowd=(0, 0, 1))


def test_polygons_need_three_levels():
    names = {"GtClasses": "int32", "IsCrowd": "int32", "LabelsInt32": "int32"}
    inputs = {name: (np.ones((1, 1), kind), [[1]]) for name, kind in names.items()}
    inputs |= {"Rois": (np.ones((1, 4), "float32"), [[1]]), "ImInfo": np.ones((1, 3), "float32")}
    inputs["GtSegms"] = (np.ones((3, 2), "float32"), [[3]])
    with pytest.raises(RuntimeError, match="needs 3 levels"):
        check_op("generate_mask_labels", inputs, {"num_classes": 2, "resolution": 2})


def test_mask_layer():
    ints = [static.data(n, [-1, 1], "int32", lod_level=1) for n in ("classes", "crowd", "labels")]
    info, boxes = static.data("info", [-1, 3]), static.data("boxes", [-1, 4], lod_level=1)
    points = static.data("points", [-1, 2], lod_level=3)
    found = layers.generate_mask_labels(info, *ints[:2], points, boxes, ints[2], 3, 14)
    assert [v.shape for v in found] == [(-1, 4), (-1, 1), (-1, 3 * 14 * 14)]
    assert all(v.stop_gradient for v in found)
    with pytest.raises(TypeError, match="labels_int32"):
        layers.generate_mask_labels(info, *ints[:2], points, boxes, boxes, 3, 14)
