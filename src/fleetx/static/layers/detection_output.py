"""Layers from predictions to detections (NMS), and their evaluation (mAP)."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import WIDE
from fleetx.static.building.op_layer import changed, op_layer
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.detection_boxes import box_coder
from fleetx.static.layers.nn import softmax
from fleetx.static.layers.tensor import transpose

_NMS: dict[str, Any] = {"score_threshold": float, "nms_top_k": int, "keep_top_k": int}
_HARD_NMS = {
    **_NMS,
    "nms_threshold": float,
    "normalized": bool,
    "nms_eta": float,
    "background_label": int,
}


@op_layer("BBoxes=bboxes scores", no_grad="Out", bboxes=WIDE, scores=WIDE, **_HARD_NMS)
def multiclass_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    name: str | None = None,
) -> Variable:
    """Apply non-maximum suppression per class; return rows (class, score, corners)."""


def _check_one_class(scores: Variable, name: str, layer: str) -> None:
    check_variable_and_dtype(scores, name, WIDE, layer)
    if len(scores.shape) != 3 or scores.shape[1] != 1:
        raise ValueError(f"{name} of {layer} must be [N, 1, boxes], one class, not {scores.shape}.")


@op_layer("BBoxes=bboxes scores", no_grad="Out", scores=_check_one_class, bboxes=WIDE, **_HARD_NMS)
def locality_aware_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = -1,
    name: str | None = None,
) -> Variable:
    """Apply locality-aware NMS, which merges overlapping neighbours first: for text boxes."""


@op_layer(
    "BBoxes=bboxes scores",
    output="Out Index:int32",
    returns="Out Index?return_index",
    no_grad="Out Index",
    bboxes=WIDE,
    scores=WIDE,
    **_NMS,
    post_threshold=float,
    gaussian_sigma=float,
    background_label=int,
    normalized=bool,
    use_gaussian=bool,
)
def matrix_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    return_index: bool = False,
    name: str | None = None,
) -> Any:
    """Apply matrix NMS: decay the scores of boxes by their overlap with better ones."""


def detection_output(
    loc: Variable,
    scores: Variable,
    prior_box: Variable,
    prior_box_var: Variable,
    background_label: int = 0,
    nms_threshold: float = 0.3,
    nms_top_k: int = 400,
    keep_top_k: int = 200,
    score_threshold: float = 0.01,
    nms_eta: float = 1.0,
    return_index: bool = False,
) -> Any:
    """Decode the locations of SSD and apply NMS per class.

    `background_label` and `nms_eta` are accepted without effect: as in Paddle, 0 and 1.0 are used.
    """
    boxes = box_coder(prior_box, prior_box_var, loc, "decode_center_size")
    probabilities = transpose(softmax(scores), [0, 2, 1])
    probabilities.stop_gradient = True
    helper = LayerHelper("detection_output")
    attrs = {
        "background_label": 0,
        "nms_threshold": nms_threshold,
        "nms_top_k": nms_top_k,
        "keep_top_k": keep_top_k,
        "score_threshold": score_threshold,
        "nms_eta": 1.0,
    }
    inputs = {"Scores": probabilities, "BBoxes": boxes}
    if not return_index:
        return helper.output_of(
            "multiclass_nms", inputs, attrs, dtype=boxes.dtype, stop_gradient=True
        )
    types = {"Out": boxes.dtype, "Index": "int32"}
    out, index = helper.outputs_of("multiclass_nms2", inputs, attrs, "Out Index", **types)
    return out, index


def _levels(values: Any, name: str, layer: str) -> None:
    check_type(values, name, list, layer)
    for i, value in enumerate(values):
        check_variable_and_dtype(value, f"{name}{i}", WIDE, layer)


@op_layer(
    "BBoxes=bboxes scores anchors im_info",
    output="Out:scores",
    no_grad="Out",
    bboxes=_levels,
    scores=_levels,
    anchors=_levels,
    im_info=WIDE,
)
def retinanet_detection_output(
    bboxes: list[Variable],
    scores: list[Variable],
    anchors: list[Variable],
    im_info: Variable,
    score_threshold: float = 0.05,
    nms_top_k: int = 1000,
    keep_top_k: int = 100,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
) -> Variable:
    """Return the detections of RetinaNet from its predictions on all levels.

    `nms_eta` is accepted without effect: as in Paddle, 1.0 is used.
    """
    return changed(nms_eta=1.0)


def detection_map(
    detect_res: Variable,
    label: Variable,
    class_num: int,
    background_label: int = 0,
    overlap_threshold: float = 0.3,
    evaluate_difficult: bool = True,
    has_state: Variable | None = None,
    input_states: Any = None,
    out_states: Any = None,
    ap_version: str = "integral",
) -> Variable:
    """Return the mean average precision of a batch, or of all batches if states are given."""
    helper = LayerHelper("detection_map")
    types = {"AccumPosCount": "int32", "AccumTruePos": "float32", "AccumFalsePos": "float32"}
    if out_states is None:
        out_states = [helper.create_variable_for_type_inference(t) for t in types.values()]
    states = input_states or [None] * 3
    out = helper.create_variable_for_type_inference("float32")
    helper.append_op(
        type="detection_map",
        inputs={
            "Label": label,
            "DetectRes": detect_res,
            "HasState": has_state,
            "PosCount": states[0],
            "TruePos": states[1],
            "FalsePos": states[2],
        },
        outputs={"MAP": out, **dict(zip(types, out_states, strict=True))},
        attrs={
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_type": ap_version,
            "class_num": class_num,
        },
    )
    return out


export_defined(globals())
