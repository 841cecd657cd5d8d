"""Layers that compute the training targets of detectors, and their losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import WIDE
from fleetx.static.building.op_layer import checked, op_layer
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.detection_boxes import box_coder, iou_similarity
from fleetx.static.layers.loss import smooth_l1, softmax_with_cross_entropy
from fleetx.static.layers.math import reduce_sum
from fleetx.static.layers.slicing import gather, slice
from fleetx.static.layers.tensor import cast, flatten, reshape, shape

_ANCHORS: dict[str, Any] = dict.fromkeys(
    ("bbox_pred", "cls_logits", "anchor_box", "anchor_var", "gt_boxes", "im_info"), WIDE
)
_REGIONS = "Rois LabelsInt32 BboxTargets BboxInsideWeights BboxOutsideWeights"


@op_layer(
    "DistMat=dist_matrix",
    output="ColToRowMatchIndices:int32 ColToRowMatchDist",
    returns="ColToRowMatchIndices ColToRowMatchDist",
)
def bipartite_match(
    dist_matrix: Variable,
    match_type: str | None = None,
    dist_threshold: float | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Match columns (priors) with rows (true boxes): index of the row or -1, and the overlap."""


@op_layer(
    "X=input MatchIndices=matched_indices NegIndices=negative_indices",
    output="Out OutWeight:float32",
    returns="Out OutWeight",
)
def target_assign(
    input: Variable,
    matched_indices: Variable,
    negative_indices: Variable | None = None,
    mismatch_value: int | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Return for each prior the row of its match, or `mismatch_value`, and its weight."""


def ssd_loss(
    location: Variable,
    confidence: Variable,
    gt_box: Variable,
    gt_label: Variable,
    prior_box: Variable,
    prior_box_var: Any = None,
    background_label: int = 0,
    overlap_threshold: float = 0.5,
    neg_pos_ratio: float = 3.0,
    neg_overlap: float = 0.5,
    loc_loss_weight: float = 1.0,
    conf_loss_weight: float = 1.0,
    match_type: str = "per_prediction",
    mining_type: str = "max_negative",
    normalize: bool = True,
    sample_size: int | None = None,
) -> Variable:
    """Return the loss of SSD per image: location and class of matched priors and hard negatives."""
    if mining_type != "max_negative":
        raise ValueError(f"mining_type of ssd_loss must be 'max_negative', not {mining_type!r}.")
    helper = LayerHelper("ssd_loss")
    images_and_priors = slice(shape(confidence), axes=[0], starts=[0], ends=[2])
    images_and_priors.stop_gradient = True
    matched, distance = bipartite_match(
        iou_similarity(gt_box, prior_box), match_type, overlap_threshold
    )
    gt_label = reshape(gt_label, [0] * (len(gt_label.shape) - 1) + [-1, 1])
    gt_label.stop_gradient = True
    confidence = flatten(confidence, 2)

    def class_loss(negatives: Variable | None, index: Variable) -> tuple[Variable, Variable]:
        target, weight = target_assign(gt_label, index, negatives, background_label)
        label = flatten(cast(target, "int64"), 2)
        label.stop_gradient = weight.stop_gradient = True
        return softmax_with_cross_entropy(confidence, label), weight

    losses = reshape(class_loss(None, matched)[0], [-1, 0], actual_shape=images_and_priors)
    losses.stop_gradient = True
    negatives, kept = helper.outputs_of(
        "mine_hard_examples",
        {"ClsLoss": losses, "MatchIndices": matched, "MatchDist": distance},
        {
            "neg_pos_ratio": neg_pos_ratio,
            "neg_dist_threshold": neg_overlap,
            "mining_type": mining_type,
            "sample_size": sample_size or 0,
        },
        NegIndices="int32",
        UpdatedMatchIndices=matched.dtype,
    )
    code = box_coder(prior_box, prior_box_var, gt_box, "encode_center_size")
    target, located = target_assign(code, kept, mismatch_value=background_label)
    conf_loss, counted = class_loss(negatives, kept)
    counted, located = flatten(counted, 2), flatten(located, 2)
    target = flatten(target, 2)
    for constant in (counted, located, target):
        constant.stop_gradient = True
    loc_loss = smooth_l1(flatten(location, 2), target) * located
    loss = conf_loss_weight * (conf_loss * counted) + loc_loss_weight * loc_loss
    loss = reduce_sum(reshape(loss, [-1, 0], actual_shape=images_and_priors), dim=1, keep_dim=True)
    return loss / reduce_sum(located) if normalize else loss


def _assign(
    layer: str, inputs: dict[str, Variable], attrs: dict[str, Any], dtype: Any, *more: str
) -> list[Variable]:
    """Return indices for locations and scores, labels, boxes, weights, and `more` outputs."""
    types = {
        "LocationIndex": "int32",
        "ScoreIndex": "int32",
        "TargetLabel": "int32",
        "TargetBBox": dtype,
        "BBoxInsideWeight": dtype,
        **dict.fromkeys(more, "int32"),
    }
    return LayerHelper(layer).outputs_of(layer, inputs, attrs, " ".join(types), **types)


@checked(**_ANCHORS, is_crowd=("int32",))
def rpn_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    is_crowd: Variable,
    im_info: Variable,
    rpn_batch_size_per_im: int = 256,
    rpn_straddle_thresh: float = 0.0,
    rpn_fg_fraction: float = 0.5,
    rpn_positive_overlap: float = 0.7,
    rpn_negative_overlap: float = 0.3,
    use_random: bool = True,
) -> tuple[Variable, ...]:
    """Sample anchors for training; return their predicted scores and boxes, and the targets."""
    attrs = {
        "rpn_batch_size_per_im": rpn_batch_size_per_im,
        "rpn_straddle_thresh": rpn_straddle_thresh,
        "rpn_positive_overlap": rpn_positive_overlap,
        "rpn_negative_overlap": rpn_negative_overlap,
        "rpn_fg_fraction": rpn_fg_fraction,
        "use_random": use_random,
    }
    inputs = {"Anchor": anchor_box, "GtBoxes": gt_boxes, "IsCrowd": is_crowd, "ImInfo": im_info}
    where, which, label, box, weight = _assign("rpn_target_assign", inputs, attrs, anchor_box.dtype)
    scores = gather(reshape(cls_logits, (-1, 1)), which)
    boxes = gather(reshape(bbox_pred, (-1, 4)), where)
    return scores, boxes, label, box, weight


@checked(**_ANCHORS, gt_labels=("int32",), is_crowd=("int32",))
def retinanet_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    gt_labels: Variable,
    is_crowd: Variable,
    im_info: Variable,
    num_classes: int = 1,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
) -> tuple[Variable, ...]:
    """Label anchors for RetinaNet; also returns the number of those with an object, plus one."""
    inputs = {
        "Anchor": anchor_box,
        "GtBoxes": gt_boxes,
        "GtLabels": gt_labels,
        "IsCrowd": is_crowd,
        "ImInfo": im_info,
    }
    attrs = {"positive_overlap": positive_overlap, "negative_overlap": negative_overlap}
    where, which, label, box, weight, count = _assign(
        "retinanet_target_assign", inputs, attrs, anchor_box.dtype, "ForegroundNumber"
    )
    scores = gather(reshape(cls_logits, (-1, num_classes)), which)
    boxes = gather(reshape(bbox_pred, (-1, 4)), where)
    return scores, boxes, label, box, weight, count


@op_layer(
    "rpn_rois gt_classes is_crowd gt_boxes im_info",
    output=_REGIONS.replace("LabelsInt32", "LabelsInt32:int32"),
    returns=_REGIONS,
    no_grad=_REGIONS,
    rpn_rois=WIDE,
    gt_classes=("int32",),
    is_crowd=("int32",),
)
def generate_proposal_labels(
    rpn_rois: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_boxes: Variable,
    im_info: Variable,
    batch_size_per_im: int = 256,
    fg_fraction: float = 0.25,
    fg_thresh: float = 0.25,
    bg_thresh_hi: float = 0.5,
    bg_thresh_lo: float = 0.0,
    bbox_reg_weights: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    class_nums: int | None = None,
    use_random: bool = True,
    is_cls_agnostic: bool = False,
    is_cascade_rcnn: bool = False,
) -> tuple[Variable, ...]:
    """Sample regions for training; return regions, classes, box targets per class, two weights."""


@op_layer(
    "x GTBox=gt_box GTLabel=gt_label GTScore=gt_score",
    output="Loss ObjectnessMask:int32 GTMatchMask:int32",
    x=Variable,
    gt_box=Variable,
    gt_label=Variable,
    gt_score=Variable | None,
    anchors=list | tuple,
    anchor_mask=list | tuple,
    class_num=int,
    ignore_thresh=float,
    use_label_smooth=bool,
)
def yolov3_loss(
    x: Variable,
    gt_box: Variable,
    gt_label: Variable,
    anchors: Sequence[int],
    anchor_mask: Sequence[int],
    class_num: int,
    ignore_thresh: float,
    downsample_ratio: int,
    gt_score: Variable | None = None,
    use_label_smooth: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> Variable:
    """Return the loss of one feature map of YOLOv3 per image."""


@op_layer("x label fg_num", x=WIDE, label=("int32",), fg_num=("int32",))
def sigmoid_focal_loss(
    x: Variable, label: Variable, fg_num: Variable, gamma: float = 2.0, alpha: float = 0.25
) -> Variable:
    """Return the focal loss of each class of each row."""


export_defined(globals())
