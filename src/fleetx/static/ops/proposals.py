"""Regions that a proposal network thinks worth looking at, and their levels of a pyramid."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import detached_op
from fleetx.static.ops.boxes import box_area, box_overlap, clip_boxes, decode_boxes
from fleetx.static.ops.nms import suppress
from fleetx.static.shapes.infer_rules import shapes
from fleetx.static.shapes.lod import Lods, WithLod, lod_of, offsets_of, segment_ids

# No proposal is larger than 1000 / 16 times its anchor.
LARGEST_SCALE = math.log(1000.0 / 16.0)


@detached_op(
    "generate_proposals",
    inputs="Scores BboxDeltas ImInfo Anchors Variances",
    outputs="RpnRois RpnRoiProbs RpnRoisLod?",
    infer=shapes(
        "Scores",
        lambda op, x: {
            "RpnRois": ((-1, 4), x.dtype, 1),
            "RpnRoiProbs": ((-1, 1), x.dtype, 1),
            "RpnRoisLod": ((-1,), VarType.INT64),
        },
    ),
)
def generate_proposals(
    scores: Tensor,
    deltas: Tensor,
    info: Tensor,
    anchors: Tensor,
    variances: Tensor,
    *,
    pre_nms_topN: int = 6000,
    post_nms_topN: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    lod: Lods,
) -> tuple[WithLod, WithLod, Tensor]:
    """Decode the best anchors of each image, clip them, drop small ones, and suppress."""
    del lod
    flat_anchors, flat_variances = anchors.reshape(-1, 4), variances.reshape(-1, 4)
    boxes, values = [], []
    for image in range(len(scores)):
        score = scores[image].permute(1, 2, 0).reshape(-1)
        delta = deltas[image].permute(1, 2, 0).reshape(-1, 4)
        order = score.argsort(descending=True, stable=True)
        order = order[:pre_nms_topN] if pre_nms_topN > 0 else order
        moved = delta[order] * flat_variances[order]
        box = decode_boxes(moved, flat_anchors[order], 1.0, LARGEST_SCALE)
        box = clip_boxes(box, info[image, :2])
        score = score[order]
        size = box[:, 2:] - box[:, :2]
        center = box[:, :2] + (size + 1) / 2
        large = ((size / info[image, 2] + 1) >= max(min_size, 1.0)).all(1)
        keep = large & (center[:, 0] <= info[image, 1]) & (center[:, 1] <= info[image, 0])
        box, score = box[keep], score[keep]
        if len(box) and nms_thresh > 0:
            kept = suppress(box_overlap(box, box, 1.0), nms_thresh, eta, post_nms_topN)
            box, score = box[kept], score[kept]
        boxes.append(box)
        values.append(score[:, None])
    offsets = offsets_of(len(part) for part in boxes)
    ends = torch.tensor(offsets[1:], dtype=torch.int64, device=scores.device)
    return WithLod(torch.cat(boxes), [offsets]), WithLod(torch.cat(values), [offsets]), ends


@detached_op(
    "collect_fpn_proposals",
    inputs="MultiLevelRois* MultiLevelScores*",
    outputs="FpnRois",
    infer=shapes("MultiLevelRois", lambda op, x: {"FpnRois": ((-1, 4), x.dtype, 1)}),
)
def collect_fpn_proposals(
    rois: list[Tensor], scores: list[Tensor], *, post_nms_topN: int = 0, lod: Lods
) -> WithLod:
    """Return the best regions of all levels, sorted by image."""
    name = "collect_fpn_proposals"
    levels = [lod_of(lod, "MultiLevelRois", name, i)[-1] for i in range(len(rois))]
    count = max(map(len, levels)) - 1
    image = torch.cat([segment_ids(offsets, "cpu") for offsets in levels])
    best = torch.cat(scores).reshape(-1).argsort(descending=True, stable=True)[:post_nms_topN]
    order = best[image[best].argsort(stable=True)]
    sizes = torch.bincount(image[order], minlength=count).tolist()
    return WithLod(torch.cat(rois)[order], [offsets_of(sizes)])


@detached_op(
    "distribute_fpn_proposals",
    inputs="FpnRois",
    outputs="MultiFpnRois* RestoreIndex",
    infer=shapes(
        "FpnRois",
        lambda op, x: {
            "MultiFpnRois": ((-1, 4), x.dtype, 1),
            "RestoreIndex": ((-1, 1), VarType.INT32),
        },
    ),
)
def distribute_fpn_proposals(
    rois: Tensor,
    *,
    min_level: int = 0,
    max_level: int = 0,
    refer_level: int = 0,
    refer_scale: int = 0,
    lod: Lods,
) -> tuple[list[WithLod], Tensor]:
    """Give each region to the level of its size; the index puts them back in order."""
    offsets = lod_of(lod, "FpnRois", "distribute_fpn_proposals")[-1]
    size = box_area(rois, 1.0).sqrt()
    level = (torch.log2(size / refer_scale + 1e-6) + refer_level).floor()
    level = level.clamp(min_level, max_level).long()
    image = segment_ids(offsets, "cpu")
    parts, order = [], []
    for wanted in range(min_level, max_level + 1):
        index = (level == wanted).nonzero().reshape(-1)
        sizes = torch.bincount(image[index], minlength=len(offsets) - 1).tolist()
        parts.append(WithLod(rois[index], [offsets_of(sizes)]))
        order.append(index)
    return parts, torch.cat(order).argsort().to(torch.int32)[:, None]
