"""Ops for detecting objects: small cases worked out by hand or with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_check import OpProgram, check_op

from fleetx import static
from fleetx.static.readers.lod_tensor import create_lod_tensor


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def boxes(*shape: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 0.6, (*shape, 2))
    return np.concatenate([low, low + rng.uniform(0.05, 0.4, (*shape, 2))], -1) * scale


def overlap(a: Any, b: Any, extra: float = 0.0) -> float:
    width = max(min(a[2], b[2]) - max(a[0], b[0]) + extra, 0)
    height = max(min(a[3], b[3]) - max(a[1], b[1]) + extra, 0)
    areas = [(v[2] - v[0] + extra) * (v[3] - v[1] + extra) for v in (a, b)]
    return float(width * height / (sum(areas) - width * height))


def fetch(type: str, inputs: dict[str, Any], attrs: dict[str, Any], counts: dict[str, int]) -> Any:
    """Return arrays and sequence lengths of all outputs, in the order of the slots."""
    program = OpProgram(type, inputs, attrs, counts)
    variables = [v for group in program.outputs.values() for v in group]
    found = static.Executor(static.CPUPlace()).run(
        program.main, feed=program.feeds, fetch_list=variables, return_numpy=False
    )
    return [(np.asarray(v), v.recursive_sequence_lengths()) for v in found]


def test_prior_boxes_of_one_cell() -> None:
    inputs = {"Input": numbers(1, 1, 1, 1), "Image": numbers(1, 3, 10, 20)}
    attrs = {"min_sizes": [4.0], "max_sizes": [9.0], "aspect_ratios": [4.0], "flip": True}
    attrs |= {"clip": False, "variances": [0.1, 0.1, 0.2, 0.2]}
    sizes = [(4, 4), (8, 2), (2, 8), (6, 6)]
    wanted = [
        [(10 - w / 2) / 20, (5 - h / 2) / 10, (10 + w / 2) / 20, (5 + h / 2) / 10] for w, h in sizes
    ]
    outputs = {
        "Boxes": np.array(wanted).reshape(1, 1, 4, 4),
        "Variances": np.tile([0.1, 0.1, 0.2, 0.2], (1, 1, 4, 1)),
    }
    check_op("prior_box", inputs, attrs, outputs)


def test_anchors_of_two_cells() -> None:
    attrs = {"anchor_sizes": [32.0], "aspect_ratios": [1.0], "stride": [16.0, 16.0], "offset": 0.5}
    found = check_op("anchor_generator", {"Input": numbers(1, 1, 1, 2)}, attrs)
    wanted = np.array([[-8.0, -8, 23, 23], [8, -8, 39, 23]])
    np.testing.assert_allclose(found["Anchors"][0].reshape(2, 4), wanted)


@pytest.mark.parametrize("normalized", [True, False])
def test_overlaps(normalized: bool) -> None:
    x, y = boxes(3, scale=9), boxes(2, scale=9, seed=1)
    wanted = [[overlap(a, b, 0.0 if normalized else 1.0) for b in y] for a in x]
    check_op(
        "iou_similarity",
        {"X": x, "Y": y},
        {"box_normalized": normalized},
        {"Out": np.array(wanted)},
    )


@pytest.mark.parametrize("normalized", [True, False])
def test_codes_of_boxes_are_read_back(normalized: bool) -> None:
    prior, target = boxes(3, scale=9), boxes(2, scale=9, seed=1)
    attrs = {"box_normalized": normalized, "variance": [0.1, 0.1, 0.2, 0.2]}
    inputs = {"PriorBox": prior, "TargetBox": target}
    code = check_op("box_coder", inputs, {**attrs, "code_type": "encode_center_size"})
    inputs["TargetBox"] = code["OutputBox"][0]
    found = check_op("box_coder", inputs, {**attrs, "code_type": "decode_center_size"})[
        "OutputBox"
    ][0]
    if normalized:
        np.testing.assert_allclose(found, np.repeat(target[:, None], 3, 1))
    else:  # encoding takes the middle of the corners, which lies half a pixel off the centre
        np.testing.assert_allclose(found + 0.5, np.repeat(target[:, None], 3, 1), atol=1e-12)


def test_boxes_are_clipped_to_their_image() -> None:
    inputs = {
        "Input": (np.array([[-1.0, 2, 30, 9], [3, -4, 5, 40]]), [[1, 1]]),
        "ImInfo": np.array([[10.0, 20, 1], [30, 40, 2]]),
    }
    wanted = np.array([[0.0, 2, 19, 9], [3, 0, 5, 14]])
    check_op("box_clip", inputs, outputs={"Output": wanted})


def test_matching_takes_the_greatest_overlap_first() -> None:
    distance = np.array([[0.9, 0.8, 0.1, 0.0], [0.85, 0.2, 0.6, 0.0]])
    for kind, index in (("bipartite", [0, -1, 1, -1]), ("per_prediction", [0, 0, 1, -1])):
        found = check_op("bipartite_match", {"DistMat": distance}, {"match_type": kind})
        np.testing.assert_array_equal(found["ColToRowMatchIndices"][0], [index])


def test_targets_of_matches_and_negatives() -> None:
    x = np.arange(3.0).reshape(3, 1, 1)
    inputs = {
        "X": (x, [[1, 2]]),
        "MatchIndices": np.array([[0, -1], [-1, 1]], np.int32),
        "NegIndices": (np.array([[1], [0]], np.int32), [[1, 1]]),
    }
    outputs = {
        "Out": np.array([[[0.0], [7]], [[7], [2]]]),
        "OutWeight": np.ones((2, 2, 1), np.float32),
    }
    check_op("target_assign", inputs, {"mismatch_value": 7}, outputs)


def test_hard_negatives_are_those_with_the_greatest_loss() -> None:
    inputs = {
        "ClsLoss": np.array([[0.1, 0.9, 0.5, 0.7]]),
        "MatchIndices": np.array([[0, -1, -1, -1]], np.int32),
        "MatchDist": np.array([[0.8, 0.1, 0.1, 0.6]]),
    }
    attrs = {"neg_pos_ratio": 2.0, "neg_dist_threshold": 0.5}
    (negatives, lengths), _ = fetch("mine_hard_examples", inputs, attrs, {})
    assert negatives.tolist() == [[1], [2]]
    assert lengths == [[2]]


def test_suppression_keeps_the_best_of_overlapping_boxes() -> None:
    row = [[0, 0, 1, 1], [0, 0.05, 1, 1], [2, 2, 3, 3]]
    inputs = {
        "BBoxes": np.array([row], np.float64),
        "Scores": np.array([[[0.0, 0, 0], [0.6, 0.9, 0.3]]]),
    }
    attrs = {"score_threshold": 0.1, "nms_top_k": -1, "keep_top_k": -1, "nms_threshold": 0.5}
    (out, lengths), (index, _) = fetch("multiclass_nms2", inputs, attrs, {})
    np.testing.assert_allclose(out, [[1, 0.9, 0, 0.05, 1, 1], [1, 0.3, 2, 2, 3, 3]])
    assert lengths == [[2]]
    assert index.tolist() == [[1], [2]]
    nothing = fetch("multiclass_nms", inputs, {**attrs, "score_threshold": 2.0}, {})
    assert nothing[0][0].tolist() == [[-1.0]]


def test_matrix_nms_lowers_the_score_of_the_second_box() -> None:
    first, second = [0, 0, 1.0, 1], [0, 0, 1.0, 0.5]
    inputs = {"BBoxes": np.array([[first, second]]), "Scores": np.array([[[0.9, 0.8]]])}
    attrs = {"score_threshold": 0.0, "nms_top_k": -1, "keep_top_k": -1, "background_label": -1}
    (out, _), _ = fetch("matrix_nms", inputs, attrs, {})
    np.testing.assert_allclose(out[:, 1], [0.9, 0.8 * 0.5])


def test_proposals_go_to_the_level_of_their_size_and_back() -> None:
    sides = np.array([60.0, 500, 120, 230])
    rois = np.stack([0 * sides, 0 * sides, sides - 1, sides - 1], 1)
    attrs = {"min_level": 2, "max_level": 5, "refer_level": 4, "refer_scale": 224}
    *levels, (restore, _) = fetch(
        "distribute_fpn_proposals", {"FpnRois": (rois, [[1, 3]])}, attrs, {"MultiFpnRois": 4}
    )
    joined = np.concatenate([level for level, _ in levels if level.size])
    np.testing.assert_array_equal(joined[restore[:, 0]], rois)
    assert [lod for _, lod in levels] == [[[1, 0]], [[0, 1]], [[0, 1]], [[0, 1]]]


def test_boxes_of_yolo_in_the_middle_of_their_cells() -> None:
    x = np.zeros((1, 6, 1, 1))
    inputs = {"X": x, "ImgSize": np.array([[64, 32]], np.int32)}
    attrs = {"class_num": 1, "anchors": [8, 16], "downsample_ratio": 32, "conf_thresh": 0.1}
    outputs = {"Boxes": np.array([[[12.0, 16, 20, 48]]]), "Scores": np.array([[[0.25]]])}
    check_op("yolo_box", inputs, attrs, outputs)


def test_gradient_of_the_loss_of_yolo() -> None:
    inputs = {
        "X": numbers(2, 14, 3, 3),
        "GTBox": np.array(
            [[[0.2, 0.3, 0.4, 0.3], [0, 0, 0, 0]], [[0.8, 0.5, 0.2, 0.6], [0.4, 0.9, 0.3, 0.2]]]
        ),
        "GTLabel": np.array([[1, 0], [0, 1]], np.int32),
    }
    attrs = {
        "class_num": 2,
        "anchors": [10, 13, 16, 30],
        "anchor_mask": [0, 1],
        "downsample_ratio": 16,
    }
    check_op("yolov3_loss", inputs, attrs, grad_of=["X"], grad_from=["Loss"])


def test_focal_loss() -> None:
    x, label = numbers(3, 2), np.array([[1], [0], [-1]], np.int32)
    p = 1 / (1 + np.exp(-x))
    target = np.array([[1, 0], [0, 0], [0, 0]])
    loss = np.where(target, -0.25 * (1 - p) ** 2 * np.log(p), -0.75 * p**2 * np.log(1 - p))
    loss[2] = 0
    inputs = {"X": x, "Label": label, "FgNum": np.array([2], np.int32)}
    check_op("sigmoid_focal_loss", inputs, outputs={"Out": loss / 2})


def test_average_precision_of_one_right_and_one_wrong_box() -> None:
    inputs = {
        "DetectRes": (
            np.array([[1, 0.9, 0.5, 0.5, 0.9, 0.9], [1, 0.6, 0, 0, 0.4, 0.4]], np.float32),
            [[2]],
        ),
        "Label": (np.array([[1, 0, 0, 0.4, 0.4]], np.float32), [[1]]),
    }
    found = fetch("detection_map", inputs, {"class_num": 2, "overlap_threshold": 0.5}, {})
    count, right, wrong, mean = (value for value, _ in found)
    assert count.tolist() == [[0], [1]]
    np.testing.assert_allclose(right, [[0.9, 0], [0.6, 1]])
    np.testing.assert_allclose(wrong, [[0.9, 1], [0.6, 0]])
    assert mean.tolist() == [0.5]


def test_proposal_labels_of_a_true_box_and_a_far_one() -> None:
    inputs = {
        "RpnRois": (np.array([[0.0, 0, 9, 9], [50, 50, 60, 60]]), [[2]]),
        "GtClasses": (np.array([[2]], np.int32), [[1]]),
        "IsCrowd": (np.array([[0]], np.int32), [[1]]),
        "GtBoxes": (np.array([[0.0, 0, 9, 9]]), [[1]]),
        "ImInfo": np.array([[100.0, 100, 1]]),
    }
    attrs = {"batch_size_per_im": 4, "fg_fraction": 0.5, "fg_thresh": 0.5, "class_nums": 3}
    found = fetch("generate_proposal_labels", inputs, {**attrs, "use_random": False}, {})
    rois, labels, targets, weights, _ = (value for value, _ in found)
    assert labels.tolist() == [[2], [2], [0]]
    np.testing.assert_array_equal(rois[2], [50, 50, 60, 60])
    np.testing.assert_array_equal(targets, np.zeros((3, 12)))
    assert weights[:, 8:].sum(1).tolist() == [4, 4, 0]


def test_deformable_convolution_without_shift_is_a_convolution() -> None:
    x, weight = numbers(1, 2, 4, 3), numbers(3, 2, 3, 3, seed=1)
    attrs = {"strides": [1, 1], "paddings": [1, 1], "dilations": [1, 1]}
    plain = check_op("conv2d", {"Input": x, "Filter": weight}, attrs, grad_of=[])["Output"][0]
    inputs = {"Input": x, "Offset": np.zeros((1, 18, 4, 3)), "Filter": weight}
    check_op("deformable_conv_v1", inputs, attrs, {"Output": plain}, grad_of=["Input", "Filter"])
    inputs["Offset"] = numbers(1, 18, 4, 3, seed=2) * 0.9 + 0.05
    inputs["Mask"] = np.full((1, 9, 4, 3), 0.5)
    check_op("deformable_conv", inputs, attrs, grad_of=["Offset", "Mask"])


def test_a_detector_of_layers_learns() -> None:
    layers = static.layers
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        image = static.data("image", [1, 3, 16, 16])
        truth = layers.data("truth", [4], lod_level=1)
        label = layers.data("label", [1], dtype="int32", lod_level=1)
        maps = [layers.conv2d(image, 4, 3, stride=4, padding=1)]
        maps += [layers.conv2d(maps[-1], 4, 3, stride=2, padding=1) for _ in range(2)]
        parts = layers.multi_box_head(
            maps, image, 16, 3, [[2.0]] * 3, min_ratio=20, max_ratio=90, offset=0.5
        )
        loss = layers.reduce_sum(layers.ssd_loss(parts[0], parts[1], truth, label, *parts[2:]))
        found = layers.detection_output(*parts)
        static.optimizer.SGD(0.05).minimize(loss)
    executor = static.Executor(static.CPUPlace())
    executor.run(startup)
    place = static.CPUPlace()
    feed = {
        "image": numbers(1, 3, 16, 16).astype("float32"),
        "truth": create_lod_tensor(boxes(2).astype("float32"), [[2]], place),
        "label": create_lod_tensor(np.array([[1], [2]], "int32"), [[2]], place),
    }
    costs = []
    for _ in range(8):
        cost, rows = executor.run(main, feed=feed, fetch_list=[loss, found], return_numpy=False)
        costs.append(float(np.asarray(cost).reshape(-1)[0]))
    assert costs[-1] < costs[0]
    assert np.asarray(rows).shape[1] == 6
