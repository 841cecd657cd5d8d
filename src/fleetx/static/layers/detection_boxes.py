"""Layers on boxes: IoU, encoding, clipping, YOLO boxes, levels of a feature pyramid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import WIDE
from fleetx.static.building.op_layer import changed, op_layer
from fleetx.static.graph.variable import Variable

_PREDICTIONS: dict[str, Any] = dict.fromkeys(
    ("scores", "bbox_deltas", "anchors", "variances"), ("float32",)
)


@op_layer("x y")
def iou_similarity(
    x: Variable, y: Variable, box_normalized: bool = True, name: str | None = None
) -> Variable:
    """Return the IoU (intersection over union) of each box of x with each of y."""


@op_layer(
    "prior_box target_box",
    output="OutputBox",
    attrs={"variance": "prior_box_var"},
    tensors="prior_box_var",
    prior_box_var=Variable | list,
)
def box_coder(
    prior_box: Variable,
    prior_box_var: Any,
    target_box: Variable,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    name: str | None = None,
    axis: int = 0,
) -> Variable:
    """Encode boxes relative to priors, or decode such codes."""


@op_layer("input im_info", output="Output", input=WIDE, im_info=WIDE)
def box_clip(input: Variable, im_info: Variable, name: str | None = None) -> Variable:
    """Clip boxes to their image."""


@op_layer("input", output="Output", input=WIDE)
def polygon_box_transform(input: Variable, name: str | None = None) -> Variable:
    """Convert offsets from each position of a map into coordinates of polygons."""


@op_layer(
    "prior_box prior_box_var target_box box_score",
    output="DecodeBox OutputAssignBox",
    returns="DecodeBox OutputAssignBox",
)
def box_decoder_and_assign(
    prior_box: Variable,
    prior_box_var: Variable,
    target_box: Variable,
    box_score: Variable,
    box_clip: float,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Decode a box per class, and return them and that of the best class."""


@op_layer(
    "x img_size",
    output="Boxes Scores",
    returns="Boxes Scores",
    x=Variable,
    img_size=Variable,
    anchors=list | tuple,
    class_num=int,
    conf_thresh=float,
)
def yolo_box(
    x: Variable,
    img_size: Variable,
    anchors: Sequence[int],
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    clip_bbox: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> tuple[Variable, Variable]:
    """Return corners and scores of the boxes that a feature map of YOLOv3 predicts."""


@op_layer(
    "scores bbox_deltas im_info anchors variances",
    output="RpnRois RpnRoiProbs RpnRoisLod:int32",
    attrs={"pre_nms_topN": "pre_nms_top_n", "post_nms_topN": "post_nms_top_n"},
    returns="RpnRois RpnRoiProbs RpnRoisLod?return_rois_num",
    no_grad="RpnRois RpnRoiProbs RpnRoisLod",
    **_PREDICTIONS,
    im_info=WIDE,
)
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
    """Return the best proposals of a region proposal network and their scores."""


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


@op_layer(
    "MultiLevelRois=multi_rois MultiLevelScores=multi_scores",
    output="FpnRois",
    attrs={"post_nms_topN": "post_nms_top_n"},
    unused="min_level max_level",
    no_grad="FpnRois",
)
def collect_fpn_proposals(
    multi_rois: list[Variable],
    multi_scores: list[Variable],
    min_level: int,
    max_level: int,
    post_nms_top_n: int,
    name: str | None = None,
) -> Variable:
    """Return the best regions of all levels, sorted by image."""
    levels = slice(max_level - min_level + 1)
    return changed(multi_rois=multi_rois[levels], multi_scores=multi_scores[levels])


export_defined(globals())
