"""Layers that compute with boxes: overlaps, codes, clipping, boxes of YOLO, levels of a pyramid."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.variable import Variable

_FLOATS = ["float32", "float64"]


def iou_similarity(
    x: Variable, y: Variable, box_normalized: bool = True, name: str | None = None
) -> Variable:
    """Return intersection over union of each box of x with each of y."""
    helper = LayerHelper("iou_similarity", name=name)
    attrs = {"box_normalized": box_normalized}
    return helper.output_of("iou_similarity", {"X": x, "Y": y}, attrs, dtype=x.dtype)


def box_coder(
    prior_box: Variable,
    prior_box_var: Any,
    target_box: Variable,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    name: str | None = None,
    axis: int = 0,
) -> Variable:
    """Write boxes relative to priors (encode), or read such codes back (decode)."""
    helper = LayerHelper("box_coder", name=name)
    inputs: dict[str, Any] = {"PriorBox": prior_box, "TargetBox": target_box}
    attrs = {"code_type": code_type, "box_normalized": box_normalized, "axis": axis}
    if isinstance(prior_box_var, Variable):
        inputs["PriorBoxVar"] = prior_box_var
    elif isinstance(prior_box_var, list):
        attrs["variance"] = prior_box_var
    else:
        raise TypeError(
            f"prior_box_var of box_coder must be a Variable or a list, not {prior_box_var!r}."
        )
    return helper.output_of("box_coder", inputs, attrs, dtype=prior_box.dtype, slot="OutputBox")


def box_clip(input: Variable, im_info: Variable, name: str | None = None) -> Variable:
    """Move the corners of boxes into their image."""
    check_variable_and_dtype(input, "input", _FLOATS, "box_clip")
    check_variable_and_dtype(im_info, "im_info", _FLOATS, "box_clip")
    helper = LayerHelper("box_clip", name=name)
    inputs = {"Input": input, "ImInfo": im_info}
    return helper.output_of("box_clip", inputs, dtype=input.dtype, slot="Output")


def polygon_box_transform(input: Variable, name: str | None = None) -> Variable:
    """Turn distances from each place of a map into coordinates of polygons."""
    check_variable_and_dtype(input, "input", _FLOATS, "polygon_box_transform")
    helper = LayerHelper("polygon_box_transform", name=name)
    inputs = {"Input": input}
    return helper.output_of("polygon_box_transform", inputs, dtype=input.dtype, slot="Output")


def box_decoder_and_assign(
    prior_box: Variable,
    prior_box_var: Variable,
    target_box: Variable,
    box_score: Variable,
    box_clip: float,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Decode a box per class, and return them and that of the best class."""
    helper = LayerHelper("box_decoder_and_assign", name=name)
    inputs = {
        "PriorBox": prior_box,
        "PriorBoxVar": prior_box_var,
        "TargetBox": target_box,
        "BoxScore": box_score,
    }
    types = {"DecodeBox": prior_box.dtype, "OutputAssignBox": prior_box.dtype}
    attrs = {"box_clip": box_clip}
    decoded, assigned = helper.outputs_of("box_decoder_and_assign", inputs, attrs, **types)
    return decoded, assigned


def yolo_box(
    x: Variable,
    img_size: Variable,
    anchors: Any,
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    clip_bbox: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> tuple[Variable, Variable]:
    """Return corners and scores of the boxes that a feature map of YOLOv3 predicts."""
    check_type(x, "x", Variable, "yolo_box")
    check_type(img_size, "img_size", Variable, "yolo_box")
    check_type(anchors, "anchors", (list, tuple), "yolo_box")
    check_type(class_num, "class_num", int, "yolo_box")
    check_type(conf_thresh, "conf_thresh", float, "yolo_box")
    helper = LayerHelper("yolo_box", name=name)
    attrs = {
        "anchors": list(anchors),
        "class_num": class_num,
        "conf_thresh": conf_thresh,
        "downsample_ratio": downsample_ratio,
        "clip_bbox": clip_bbox,
        "scale_x_y": scale_x_y,
    }
    inputs = {"X": x, "ImgSize": img_size}
    boxes, scores = helper.outputs_of("yolo_box", inputs, attrs, Boxes=x.dtype, Scores=x.dtype)
    return boxes, scores


def generate_proposals(
    scores: Variable,
    bbox_deltas: Variable,
    im_info: Variable,
    anchors: Variable,
    variances: Variable,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    name: str | None = None,
    return_rois_num: bool = False,
) -> tuple[Variable, ...]:
    """Return the best regions of a proposal network and their scores."""
    layer = "generate_proposals"
    single = {"scores": scores, "bbox_deltas": bbox_deltas, "anchors": anchors}
    for key, value in {**single, "variances": variances}.items():
        check_variable_and_dtype(value, key, ["float32"], layer)
    check_variable_and_dtype(im_info, "im_info", _FLOATS, layer)
    inputs = {
        "Scores": scores,
        "BboxDeltas": bbox_deltas,
        "ImInfo": im_info,
        "Anchors": anchors,
        "Variances": variances,
    }
    attrs = {
        "pre_nms_topN": pre_nms_top_n,
        "post_nms_topN": post_nms_top_n,
        "nms_thresh": nms_thresh,
        "min_size": min_size,
        "eta": eta,
    }
    types = {"RpnRois": bbox_deltas.dtype, "RpnRoiProbs": scores.dtype, "RpnRoisLod": "int32"}
    found = LayerHelper(layer, name=name).outputs_of(layer, inputs, attrs, " ".join(types), **types)
    return tuple(found if return_rois_num else found[:2])


def distribute_fpn_proposals(
    fpn_rois: Variable,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
    name: str | None = None,
) -> tuple[list[Variable], Variable]:
    """Return the regions by level of the pyramid, and the index that restores their order."""
    helper = LayerHelper("distribute_fpn_proposals", name=name)
    count = max_level - min_level + 1
    levels = [helper.create_variable_for_type_inference(fpn_rois.dtype) for _ in range(count)]
    restore = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="distribute_fpn_proposals",
        inputs={"FpnRois": fpn_rois},
        outputs={"MultiFpnRois": levels, "RestoreIndex": restore},
        attrs={
            "min_level": min_level,
            "max_level": max_level,
            "refer_level": refer_level,
            "refer_scale": refer_scale,
        },
    )
    return levels, restore


def collect_fpn_proposals(
    multi_rois: list[Variable],
    multi_scores: list[Variable],
    min_level: int,
    max_level: int,
    post_nms_top_n: int,
    name: str | None = None,
) -> Variable:
    """Return the best regions of all levels, sorted by image."""
    helper = LayerHelper("collect_fpn_proposals", name=name)
    count = max_level - min_level + 1
    inputs = {"MultiLevelRois": multi_rois[:count], "MultiLevelScores": multi_scores[:count]}
    return helper.output_of(
        "collect_fpn_proposals",
        inputs,
        {"post_nms_topN": post_nms_top_n},
        dtype=multi_rois[0].dtype,
        slot="FpnRois",
        stop_gradient=True,
    )


export_defined(globals())
