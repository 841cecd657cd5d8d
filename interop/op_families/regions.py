"""Cases of detection ops: priors, matching, proposals, suppression, YOLO, pooling of regions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from op_cases import Draw, OpCase, family, settings

_VARIANCE = [0.1, 0.1, 0.2, 0.2]


@family
def priors_and_levels(draw: Draw) -> Iterator[OpCase]:
    inputs = {"Input": draw.floats(1, 3, 3, 5), "Image": draw.floats(1, 3, 30, 51)}
    for attrs in settings(
        clip=[False, True], flatten_to_2d=[False, True], step_w=[0.0, 7.0], offset=[0.5, 0.0]
    ):
        attrs |= {"fixed_sizes": [4.0, 9.0], "fixed_ratios": [1.0, 2.0], "densities": [2, 3]}
        attrs |= {"variances": _VARIANCE, "step_h": attrs["step_w"]}
        yield OpCase("density_prior_box", inputs, attrs, "Boxes Variances")
    for lengths, levels in (([3, 4], (2, 5)), ([1, 6], (3, 3)), ([7], (2, 4))):
        rois = (draw.boxes(7, scale=400), [lengths])
        attrs = {"min_level": levels[0], "max_level": levels[1], "refer_level": levels[0] + 1}
        attrs["refer_scale"] = 100
        count = levels[1] - levels[0] + 1
        outputs = "MultiFpnRois RestoreIndex"
        yield OpCase(
            "distribute_fpn_proposals", {"FpnRois": rois}, attrs, outputs,
            counts={"MultiFpnRois": count},
        )  # fmt: skip
    for top in (1, 4, 100):
        sizes = [[2, 3], [1, 1], [4, 2]]
        inputs = {"MultiLevelRois": [(draw.boxes(sum(n), scale=90), [n]) for n in sizes]}
        inputs["MultiLevelScores"] = [(draw.apart(sum(n), 1), [n]) for n in sizes]
        inputs["MultiLevelScores"][0][0][0] = 9  # the best one is in the first image
        why = "images without regions at the end are left out of the offsets" if top == 1 else ""
        attrs = {"post_nms_topN": top}
        yield OpCase("collect_fpn_proposals", inputs, attrs, "FpnRois", differs=why)
    for clip in (4.135, 0.1) if draw.dtype == "float32" else ():  # refused in double precision
        inputs = {"PriorBox": draw.boxes(5, scale=20), "TargetBox": draw.floats(5, 12)}
        inputs |= {"PriorBoxVar": np.array(_VARIANCE, draw.dtype)}
        inputs["BoxScore"] = draw.floats(5, 3, low=0)
        outputs = "DecodeBox OutputAssignBox"
        yield OpCase("box_decoder_and_assign", inputs, {"box_clip": clip}, outputs)
    anchors = {"Input": draw.floats(2, 1, 1, 3)}
    for offset in (0.0, 0.5):
        attrs = {"anchor_sizes": [16.0, 64.0], "aspect_ratios": [0.5, 1.0, 3.0]}
        attrs |= {"stride": [8.0, 16.0], "variances": _VARIANCE, "offset": offset}
        yield OpCase("anchor_generator", anchors, attrs, "Anchors Variances")
    for attrs in settings(
        flip=[False, True], clip=[False, True], min_max_aspect_ratios_order=[False, True]
    ):
        attrs |= {"min_sizes": [4.0], "max_sizes": [9.0], "aspect_ratios": [1.0, 3.0]}
        attrs |= {"variances": _VARIANCE, "step_w": 5.0, "step_h": 6.0, "offset": 0.3}
        inputs = {"Input": draw.floats(1, 1, 1, 3), "Image": draw.floats(1, 3, 11, 20)}
        yield OpCase("prior_box", inputs, attrs, "Boxes Variances")


@family
def coding(draw: Draw) -> Iterator[OpCase]:
    for normalized in (True, False):
        for axis in (0, 1):
            prior = draw.boxes(3 if axis == 0 else 4)
            inputs = {"PriorBox": prior, "TargetBox": draw.floats(4, 3, 4)}
            attrs = {"code_type": "decode_center_size", "box_normalized": normalized, "axis": axis}
            yield OpCase("box_coder", inputs, attrs, "OutputBox")
            why = "reads the four floats of `variance` as doubles"
            yield OpCase(
                "box_coder", inputs, {**attrs, "variance": _VARIANCE}, "OutputBox",
                differs=why if draw.dtype == "float64" else "",
            )  # fmt: skip
            inputs["PriorBoxVar"] = draw.floats(*prior.shape, low=0.1)
            yield OpCase("box_coder", inputs, attrs, "OutputBox")
        inputs = {"PriorBox": draw.boxes(4), "TargetBox": (draw.boxes(3), [[1, 2]])}
        inputs["PriorBoxVar"] = draw.floats(4, 4, low=0.1)
        attrs = {"code_type": "encode_center_size", "box_normalized": normalized}
        yield OpCase("box_coder", inputs, attrs, "OutputBox")


def _truth(draw: Draw, crowd: bool) -> dict[str, Any]:
    lengths = [[2, 3]]
    flags = np.array([[0], [int(crowd)], [0], [0], [int(crowd)]], "int32")
    return {
        "GtBoxes": (draw.boxes(5, scale=90), lengths),
        "IsCrowd": (flags, lengths),
        "ImInfo": np.array([[100, 90, 1.0], [80, 100, 2.0]], draw.dtype),
    }


@family
def matching(draw: Draw) -> Iterator[OpCase]:
    for attrs in settings(
        mining_type=["max_negative"], neg_pos_ratio=[0.5, 3.0], neg_dist_threshold=[0.2, 0.9]
    ):
        inputs = {"ClsLoss": draw.apart(2, 7), "MatchDist": draw.floats(2, 7, low=0)}
        match = draw.ints(5, 2, 7, dtype="int32") - 3
        inputs["MatchIndices"] = np.maximum(match, -1).astype("int32")
        outputs = "NegIndices UpdatedMatchIndices"
        yield OpCase("mine_hard_examples", inputs, attrs, outputs)
        hard = {"mining_type": "hard_example", "sample_size": 3, "neg_dist_threshold": 0.5}
        inputs = {**inputs, "LocLoss": draw.floats(2, 7, low=0)}
        yield OpCase("mine_hard_examples", inputs, hard, outputs)
    match = np.array([[0, -1, 1, -1], [-1, 2, 0, 1]], "int32")
    for mismatch in (0, 7):
        attrs = {"mismatch_value": mismatch}
        inputs = {"X": (draw.floats(5, 4, 3), [[2, 3]]), "MatchIndices": match}
        yield OpCase("target_assign", inputs, attrs, "Out OutWeight")
        inputs["NegIndices"] = (np.array([[1], [3], [0]], "int32"), [[2, 1]])
        why = "writes the weights of negative boxes K numbers apart, past the end"
        yield OpCase("target_assign", inputs, attrs, "OutWeight Out", differs=why)
        labels = {**inputs, "X": (draw.ints(9, 5, 1, 1, dtype="int32"), [[2, 3]])}
        yield OpCase("target_assign", labels, attrs, "Out OutWeight")
    for crowd in (False, True):
        inputs = {"Anchor": draw.boxes(40, scale=95), **_truth(draw, crowd)}
        for attrs in settings(
            rpn_straddle_thresh=[0.0, -1.0], rpn_fg_fraction=[0.25, 0.6],
            rpn_batch_size_per_im=[4, 200],
        ):  # fmt: skip
            attrs |= {"rpn_positive_overlap": 0.5, "rpn_negative_overlap": 0.3, "use_random": False}
            outputs = "LocationIndex ScoreIndex TargetBBox TargetLabel BBoxInsideWeight"
            yield OpCase("rpn_target_assign", inputs, attrs, outputs)
        inputs["GtLabels"] = (draw.ints(4, 5, 1, dtype="int32") + 1, [[2, 3]])
        for positive, negative in ((0.5, 0.4), (0.3, 0.1)):
            attrs = {"positive_overlap": positive, "negative_overlap": negative}
            outputs = "LocationIndex ScoreIndex TargetBBox TargetLabel BBoxInsideWeight"
            outputs += " ForegroundNumber"
            yield OpCase("retinanet_target_assign", inputs, attrs, outputs)
        inputs = {"RpnRois": (draw.boxes(12, scale=95), [[5, 7]]), **_truth(draw, crowd)}
        inputs["GtClasses"] = (draw.ints(3, 5, 1, dtype="int32") + 1, [[2, 3]])
        for attrs in settings(
            is_cascade_rcnn=[False, True], is_cls_agnostic=[False, True],
            batch_size_per_im=[3, 64], fg_fraction=[0.25, 0.75],
        ):  # fmt: skip
            if attrs["is_cascade_rcnn"] and attrs["batch_size_per_im"] < 64:
                continue  # Paddle reserves too little memory, and stops
            attrs |= {"fg_thresh": 0.3, "bg_thresh_hi": 0.3, "bg_thresh_lo": 0.05}
            attrs |= {"class_nums": 4, "use_random": False, "bbox_reg_weights": _VARIANCE}
            outputs = "Rois LabelsInt32 BboxTargets BboxInsideWeights BboxOutsideWeights"
            yield OpCase("generate_proposal_labels", inputs, attrs, outputs)


@family
def proposals_and_suppression(draw: Draw) -> Iterator[OpCase]:
    inputs = {"Scores": draw.apart(2, 3, 4, 5), "BboxDeltas": draw.floats(2, 12, 4, 5)}
    inputs |= {"Anchors": draw.boxes(4, 5, 3, scale=60), "Variances": draw.floats(4, 5, 3, 4)}
    inputs["ImInfo"] = np.array([[64, 60, 1.0], [50, 64, 2.0]], draw.dtype)
    for attrs in settings(
        pre_nms_topN=[3, 50], post_nms_topN=[2, 30], nms_thresh=[0.3, 0.9], min_size=[0.1, 9.0]
    ):
        outputs = "RpnRois RpnRoiProbs"
        yield OpCase("generate_proposals", inputs, {**attrs, "eta": 1.0}, outputs)
    yield OpCase("generate_proposals", inputs, {**attrs, "nms_thresh": 0.8, "eta": 0.9}, outputs)
    for attrs in settings(
        background_label=[-1, 0, 2], normalized=[True, False], nms_top_k=[-1, 3],
        keep_top_k=[-1, 2], nms_eta=[1.0, 0.8],
    ):  # fmt: skip
        attrs |= {"score_threshold": 0.2, "nms_threshold": 0.6}
        inputs = {"BBoxes": draw.boxes(2, 6), "Scores": draw.floats(2, 3, 6, low=0)}
        yield OpCase("multiclass_nms", inputs, attrs)
        inputs = {"BBoxes": (draw.boxes(5, 3), [[2, 3]]), "Scores": (draw.floats(5, 3), [[2, 3]])}
        yield OpCase("multiclass_nms2", inputs, attrs, "Out Index")
    for attrs in settings(
        use_gaussian=[False, True], normalized=[True, False], background_label=[-1, 1],
        nms_top_k=[-1, 4], keep_top_k=[-1, 3], post_threshold=[0.0, 0.3],
    ):  # fmt: skip
        attrs |= {"score_threshold": 0.15, "gaussian_sigma": 1.5}
        inputs = {"BBoxes": draw.boxes(2, 6), "Scores": draw.floats(2, 3, 6, low=0)}
        yield OpCase("matrix_nms", inputs, attrs, "Out Index")
    none = {"BBoxes": draw.boxes(2, 3), "Scores": draw.floats(2, 2, 3, low=0, high=0.1)}
    attrs = {"score_threshold": 0.5, "nms_top_k": 3, "keep_top_k": 3}
    yield OpCase("multiclass_nms", none, attrs)
    yield OpCase("multiclass_nms2", none, attrs, "Out Index")
    yield OpCase("matrix_nms", none, attrs, "Out Index")
    for attrs in settings(normalized=[True, False], nms_top_k=[-1, 3], keep_top_k=[-1, 2]):
        attrs |= {"score_threshold": 0.1, "nms_threshold": 0.3, "background_label": -1}
        inputs = {"BBoxes": draw.boxes(1, 7), "Scores": draw.floats(1, 2, 7, low=0)}
        yield OpCase("locality_aware_nms", inputs, attrs)
    for attrs in settings(nms_top_k=[3, 1000], keep_top_k=[2, 100], nms_eta=[1.0, 0.9]):
        levels = (6, 4)
        inputs = {"BBoxes": [draw.floats(2, n, 4) for n in levels]}
        inputs |= {"Scores": [draw.floats(2, n, 3, low=0) for n in levels]}
        inputs |= {"Anchors": [draw.boxes(n, scale=60) for n in levels]}
        inputs |= {"ImInfo": np.array([[64, 60, 1.0], [50, 64, 2.0]], draw.dtype)}
        attrs |= {"score_threshold": 0.1, "nms_threshold": 0.4}
        yield OpCase("retinanet_detection_output", inputs, attrs)


@family
def scores_of_detections(draw: Draw) -> Iterator[OpCase]:
    labels = np.concatenate([draw.ints(3, 5, 1) + 0.0, draw.ints(2, 5, 1), draw.boxes(5)], 1)
    found = np.concatenate([draw.ints(3, 8, 1), draw.floats(8, 1, low=0), draw.boxes(8)], 1)
    found[::2, 2:] = labels[[0, 1, 3, 4], 2:]
    found[::2, 0] = labels[[0, 1, 3, 4], 0]
    for attrs in settings(
        ap_type=["integral", "11point"], evaluate_difficult=[True, False],
        overlap_threshold=[0.3, 0.7], background_label=[0, -1],
    ):  # fmt: skip
        for columns in ([0, 1, 2, 3, 4, 5], [0, 2, 3, 4, 5]):
            inputs = {"DetectRes": (found.astype(draw.dtype), [[5, 3]])}
            inputs["Label"] = (labels[:, columns].astype(draw.dtype), [[3, 2]])
            outputs = "AccumPosCount AccumTruePos AccumFalsePos MAP"
            yield OpCase("detection_map", inputs, {**attrs, "class_num": 3}, outputs)
    for attrs in settings(use_label_smooth=[True, False], scale_x_y=[1.0, 1.2]):
        attrs |= {"anchors": [10, 13, 16, 30, 33, 23], "anchor_mask": [0, 2], "class_num": 3}
        attrs |= {"ignore_thresh": 0.5, "downsample_ratio": 32}
        boxes = draw.floats(2, 4, 4, low=0.1, high=0.8)
        boxes[1, 3] = 0
        inputs = {"X": draw.floats(2, 16, 3, 3), "GTBox": boxes}
        inputs["GTLabel"] = draw.ints(3, 2, 4, dtype="int32")
        outputs = "Loss ObjectnessMask GTMatchMask"
        yield OpCase("yolov3_loss", inputs, attrs, outputs, "X", "Loss")
        inputs["GTScore"] = draw.floats(2, 4, low=0.3)
        yield OpCase("yolov3_loss", inputs, attrs, outputs, "X", "Loss")
    for attrs in settings(clip_bbox=[True, False], scale_x_y=[1.0, 1.1], conf_thresh=[0.0, 0.6]):
        sizes = np.array([[60, 50], [1, 99]], "int32")
        inputs = {"X": draw.floats(2, 14, 3, 3), "ImgSize": sizes}
        attrs |= {"class_num": 2, "anchors": [10, 13, 16, 30], "downsample_ratio": 16}
        yield OpCase("yolo_box", inputs, attrs, "Boxes Scores")


@family
def pooling_of_regions(draw: Draw) -> Iterator[OpCase]:
    for height, width, scale in ((1, 1, 1.0), (2, 3, 0.5), (3, 2, 0.25)):
        pooled = {"pooled_height": height, "pooled_width": width, "spatial_scale": scale}
        rois = (draw.boxes(4, scale=20), [[1, 3]])
        inputs = {"X": draw.floats(2, 2 * height * width, 7, 9), "ROIs": rois}
        yield OpCase("psroi_pool", inputs, {**pooled, "output_channels": 2}, grads="X")
        for ratio in (-1, 1, 3):
            attrs = {**pooled, "sampling_ratio": ratio}
            yield OpCase("roi_align", inputs, attrs, grads="X")
        yield OpCase("roi_pool", inputs, pooled, "Out Argmax", "X", "Out")
    for axis, size in ((1, 3), (2, 4), (3, 5)):
        for indexes in ([0], [0, size - 1]):
            attrs = {"axis": axis, "indexes": indexes}
            yield OpCase("similarity_focus", {"X": draw.apart(2, 3, 4, 5)}, attrs)
    for kernel, stride, padding in (([2, 2], [2, 2], [0, 0]), ([3, 3], [2, 2], [1, 1])):
        size = (3 - 1) * stride[0] - 2 * padding[0] + kernel[0]
        places = np.stack([draw.random.permutation(size * size)[:9] for _ in range(6)])
        inputs = {"X": draw.floats(2, 3, 3, 3), "Indices": places.reshape(2, 3, 3, 3)}
        inputs["Indices"] = inputs["Indices"].astype("int32")
        attrs = {"ksize": kernel, "strides": stride, "paddings": padding}
        yield OpCase("unpool", inputs, {**attrs, "unpooling_type": "max"}, grads="X")
    for stride, padding, dilation, groups, parts in (
        ([1, 1], [1, 1], [1, 1], 1, 1),
        ([2, 1], [0, 1], [1, 2], 2, 2),
    ):
        filters = draw.floats(4, 4 // groups, 3, 3)
        height = (7 + 2 * padding[0] - dilation[0] * 2 - 1) // stride[0] + 1
        width = (5 + 2 * padding[1] - dilation[1] * 2 - 1) // stride[1] + 1
        inputs = {"Input": draw.floats(2, 4, 7, 5), "Filter": filters}
        inputs["Offset"] = draw.floats(2, 18 * parts, height, width)
        attrs = {"strides": stride, "paddings": padding, "dilations": dilation, "groups": groups}
        attrs |= {"deformable_groups": parts, "im2col_step": 1}
        yield OpCase("deformable_conv_v1", inputs, attrs, "Output", "Input Offset Filter")
    for stride, padding, dilation in (([1, 1], [0, 0], [1, 1]), ([2, 1], [1, 2], [1, 2])):
        inputs = {"Input": draw.floats(2, 4, 3, 5), "Filter": draw.floats(4, 1, 3, 2)}
        attrs = {"strides": stride, "paddings": padding, "dilations": dilation, "groups": 4}
        yield OpCase("depthwise_conv2d_transpose", inputs, attrs, "Output", "Input Filter")
    inputs = {"Theta": draw.floats(2, 2, 3)}
    yield OpCase("affine_grid", inputs, {"output_shape": [2, 3, 4, 5]}, "Output", "Theta")
    inputs["OutputShape"] = np.array([2, 3, 3, 2], "int32")
    yield OpCase("affine_grid", inputs, {}, "Output", "Theta")
