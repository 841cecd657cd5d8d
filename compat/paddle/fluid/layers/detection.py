"""Layers for detecting objects."""

from fleetx.static.layers import (
    anchor_generator,
    bipartite_match,
    box_clip,
    box_coder,
    box_decoder_and_assign,
    collect_fpn_proposals,
    density_prior_box,
    detection_map,
    detection_output,
    distribute_fpn_proposals,
    generate_proposal_labels,
    generate_proposals,
    iou_similarity,
    locality_aware_nms,
    matrix_nms,
    multi_box_head,
    multiclass_nms,
    polygon_box_transform,
    prior_box,
    retinanet_detection_output,
    retinanet_target_assign,
    rpn_target_assign,
    sigmoid_focal_loss,
    ssd_loss,
    target_assign,
    yolo_box,
    yolov3_loss,
)
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
