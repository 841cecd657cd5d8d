"""What the parts of a region-based detector learn from: anchors and regions, sampled and labelled.

With `use_random=False` the first candidates are taken, which makes results repeatable.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import detached_op
from fleetx.static.ops.boxes import center_form, iou_similarity
from fleetx.static.shapes.infer_rules import shapes
from fleetx.static.shapes.lod import Lods, WithLod, lengths_of, lod_of, offsets_of

_CLOSE = 1e-5  # overlaps that differ by less are equal


def _encode(boxes: Tensor, targets: Tensor) -> Tensor:
    """Return the code that turns each box (pixels) into its target."""
    center, size = center_form(boxes, 1.0)
    goal, goal_size = center_form(targets, 1.0)
    return torch.cat([(goal - center) / size, (goal_size / size).log()], -1)


def _sample(index: Tensor, count: int, use_random: bool) -> Tensor:
    """Return at most `count` of the indices."""
    if len(index) <= count:
        return index
    return index[torch.randperm(len(index))[:count]] if use_random else index[:count]


def _label_anchors(
    overlap: Tensor, positive: float, negative: float, batch: int, fraction: float, use_random: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return anchors with a box, anchors to learn boxes from, those without, and their weights.

    An anchor below the negative overlap has no object even if it is the best one of a box; the
    first positive anchor then stands in for it with weight zero.
    """
    best = overlap.amax(1)
    closest = (overlap - overlap.amax(0)).abs() < _CLOSE
    fore = (closest.any(1) | (best >= positive)).nonzero().reshape(-1)
    back = (best < negative).nonzero().reshape(-1)
    if fraction > 0 and batch > 0:
        fore = _sample(fore, int(fraction * batch), use_random)
        back = _sample(back, batch - len(fore), use_random)
    label = torch.full((len(overlap),), -1)
    label[fore] = 1
    fake = int((label[back] == 1).sum())
    label[back] = 0
    real = (label == 1).nonzero().reshape(-1)
    located = torch.cat([fore[:1].expand(fake), real])
    weight = overlap.new_ones(len(located), 4)
    weight[:fake] = 0
    return real, located, (label == 0).nonzero().reshape(-1), weight


def _split(tensor: Tensor, lod: Lods, slot: str, op_type: str) -> list[Tensor]:
    return list(tensor.split(lengths_of(lod_of(lod, slot, op_type)[-1])))


def _join(parts: list[Tensor]) -> WithLod:
    return WithLod(torch.cat(parts), [offsets_of(len(part) for part in parts)])


_infer_rpn = shapes(
    "Anchor",
    lambda op, x: {
        "LocationIndex": ((-1,), VarType.INT32, 1),
        "ScoreIndex": ((-1,), VarType.INT32, 1),
        "TargetBBox": ((-1, 4), x.dtype, 1),
        "TargetLabel": ((-1, 1), VarType.INT32, 1),
        "BBoxInsideWeight": ((-1, 4), x.dtype, 1),
        "ForegroundNumber": ((-1, 1), VarType.INT32, 1),
    },
)


@detached_op(
    "rpn_target_assign",
    inputs="Anchor GtBoxes IsCrowd ImInfo",
    outputs="LocationIndex ScoreIndex TargetBBox TargetLabel BBoxInsideWeight",
    random=True,
    infer=_infer_rpn,
)
def rpn_target_assign(
    anchors: Tensor,
    truth: Tensor,
    crowd: Tensor,
    info: Tensor,
    *,
    rpn_batch_size_per_im: int = 256,
    rpn_straddle_thresh: float = 0.0,
    rpn_positive_overlap: float = 0.7,
    rpn_negative_overlap: float = 0.3,
    rpn_fg_fraction: float = 0.25,
    use_random: bool = True,
    lod: Lods,
) -> tuple[WithLod, ...]:
    """Choose anchors of each image to learn from, with labels and codes of their boxes."""
    rows: list[tuple[Tensor, ...]] = []
    boxes = _split(truth, lod, "GtBoxes", "rpn_target_assign")
    crowds = _split(crowd, lod, "IsCrowd", "rpn_target_assign")
    for image, (own, is_crowd) in enumerate(zip(boxes, crowds, strict=True)):
        height, width, scale = info[image].tolist()
        inside = torch.arange(len(anchors))
        if rpn_straddle_thresh >= 0:
            low = (anchors[:, :2] >= -rpn_straddle_thresh).all(1)
            high = anchors[:, 2:] < anchors.new_tensor([width, height]) + rpn_straddle_thresh
            inside = (low & high.all(1)).nonzero().reshape(-1)
        own = own[is_crowd.reshape(-1) == 0] * scale
        overlap = iou_similarity(anchors[inside], own, box_normalized=False)
        fore, located, back, weight = _label_anchors(
            overlap,
            rpn_positive_overlap,
            rpn_negative_overlap,
            rpn_batch_size_per_im,
            rpn_fg_fraction,
            use_random,
        )
        label = torch.zeros(len(fore) + len(back), 1, dtype=torch.int32)
        label[: len(fore)] = 1
        code = _encode(anchors[inside[located]], own[overlap.argmax(1)[located]])
        first = image * len(anchors)
        rows.append(
            (
                (inside[located] + first).to(torch.int32),
                (inside[torch.cat([fore, back])] + first).to(torch.int32),
                code,
                label,
                weight,
            )
        )
    return tuple(_join(list(parts)) for parts in zip(*rows, strict=True))


@detached_op(
    "retinanet_target_assign",
    inputs="Anchor GtBoxes GtLabels IsCrowd ImInfo",
    outputs="LocationIndex ScoreIndex TargetBBox TargetLabel BBoxInsideWeight ForegroundNumber",
    infer=_infer_rpn,
)
def retinanet_target_assign(
    anchors: Tensor,
    truth: Tensor,
    labels: Tensor,
    crowd: Tensor,
    info: Tensor,
    *,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
    lod: Lods,
) -> tuple[WithLod, ...]:
    """Label all anchors that are clearly an object or clearly none."""
    rows: list[tuple[Tensor, ...]] = []
    boxes = _split(truth, lod, "GtBoxes", "retinanet_target_assign")
    classes = _split(labels, lod, "GtLabels", "retinanet_target_assign")
    crowds = _split(crowd, lod, "IsCrowd", "retinanet_target_assign")
    for image, (own, own_class, is_crowd) in enumerate(zip(boxes, classes, crowds, strict=True)):
        counts = is_crowd.reshape(-1) == 0
        own, own_class = own[counts] * info[image, 2], own_class.reshape(-1)[counts]
        overlap = iou_similarity(anchors, own, box_normalized=False)
        fore, located, back, weight = _label_anchors(
            overlap, positive_overlap, negative_overlap, -1, -1.0, False
        )
        best = overlap.argmax(1)
        label = torch.zeros(len(fore) + len(back), dtype=torch.int32)
        label[: len(fore)] = own_class[best[fore]].to(torch.int32)
        first = image * len(anchors)
        rows.append(
            (
                (located + first).to(torch.int32),
                (torch.cat([fore, back]) + first).to(torch.int32),
                _encode(anchors[located], own[best[located]]),
                label[:, None],
                weight,
                torch.tensor([[len(located) + 1]], dtype=torch.int32),
            )
        )
    return tuple(_join(list(parts)) for parts in zip(*rows, strict=True))


def _label_regions(
    rois: Tensor,
    classes: Tensor,
    crowd: Tensor,
    truth: Tensor,
    scale: float,
    *,
    batch_size_per_im: int = 256,
    fg_fraction: float = 0.25,
    fg_thresh: float = 0.25,
    bg_thresh_hi: float = 0.5,
    bg_thresh_lo: float = 0.0,
    bbox_reg_weights: list[float] = [0.1, 0.1, 0.2, 0.2],
    class_nums: int = 81,
    use_random: bool = True,
    is_cascade_rcnn: bool = False,
    is_cls_agnostic: bool = False,
) -> tuple[Tensor, ...]:
    """Return regions, classes, codes by class, and weights (twice) of one image."""
    if is_cascade_rcnn:
        # The stage before has put the true boxes, unscaled, in front.
        boxes = torch.cat([rois[: len(truth)], rois[len(truth) :] / scale])
    else:
        boxes = torch.cat([truth, rois / scale])
    overlap = iou_similarity(boxes, truth, box_normalized=False)
    best, match = overlap.amax(1), ((overlap.amax(1, keepdim=True) - overlap) < _CLOSE).int()
    own = match.argmax(1)
    best[: len(truth)] = torch.where(crowd.reshape(-1) != 0, -1.0, best[: len(truth)])
    fore, back = best >= fg_thresh, (best >= bg_thresh_lo) & (best < bg_thresh_hi)
    if is_cascade_rcnn:
        real = (boxes[:, 2:] - boxes[:, :2] + 1 > 0).all(1)
        fore, back = fore & real, back & real
    back &= ~fore
    fore_index, back_index = (mask.nonzero().reshape(-1) for mask in (fore, back))
    if not is_cascade_rcnn:
        count = math.floor(batch_size_per_im * fg_fraction)
        fore_index = _sample(fore_index, count, use_random)
        back_index = _sample(back_index, batch_size_per_im - len(fore_index), use_random)
    chosen = torch.cat([fore_index, back_index])
    label = torch.zeros(len(chosen), dtype=torch.int32)
    label[: len(fore_index)] = classes.reshape(-1)[own[fore_index]].to(torch.int32)
    code = _encode(boxes[fore_index], truth[own[fore_index]])
    code = code / code.new_tensor(bbox_reg_weights)
    targets = boxes.new_zeros(len(chosen), class_nums, 4)
    weights = torch.zeros_like(targets)
    with_object = (label > 0).nonzero().reshape(-1)
    column = torch.ones_like(label) if is_cls_agnostic else label
    targets[with_object, column[with_object].long()] = code[with_object]
    weights[with_object, column[with_object].long()] = 1.0
    weight = weights.flatten(1)
    return boxes[chosen] * scale, label[:, None], targets.flatten(1), weight, weight.clone()


@detached_op(
    "generate_proposal_labels",
    inputs="RpnRois GtClasses IsCrowd GtBoxes ImInfo",
    outputs="Rois LabelsInt32 BboxTargets BboxInsideWeights BboxOutsideWeights",
    attrs=_label_regions.__kwdefaults__,
    random=True,
    infer=shapes(
        "RpnRois",
        lambda op, x: {
            "Rois": ((-1, 4), x.dtype, 1),
            "LabelsInt32": ((-1, 1), VarType.INT32, 1),
            "BboxTargets": ((-1, 4 * op.attr("class_nums")), x.dtype, 1),
            "BboxInsideWeights": ((-1, 4 * op.attr("class_nums")), x.dtype, 1),
            "BboxOutsideWeights": ((-1, 4 * op.attr("class_nums")), x.dtype, 1),
        },
    ),
)
def generate_proposal_labels(
    rois: Tensor,
    classes: Tensor,
    crowd: Tensor,
    truth: Tensor,
    info: Tensor,
    *,
    lod: Lods,
    **settings: Any,
) -> tuple[WithLod, ...]:
    """Choose regions of each image to learn from, with classes and codes of their boxes."""
    name = "generate_proposal_labels"
    groups: list[list[Any]] = [
        _split(tensor, lod, slot, name)
        for tensor, slot in (
            (rois, "RpnRois"),
            (classes, "GtClasses"),
            (crowd, "IsCrowd"),
            (truth, "GtBoxes"),
        )
    ]
    scales = info[:, 2].tolist()
    rows = [_label_regions(*parts, **settings) for parts in zip(*groups, scales, strict=True)]
    return tuple(_join(list(parts)) for parts in zip(*rows, strict=True))
