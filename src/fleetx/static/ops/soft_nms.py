"""Variants of non-maximum suppression that change scores or boxes instead of only dropping them."""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import detached_op
from fleetx.static.ops.boxes import box_overlap, decode_boxes
from fleetx.static.ops.nms import (
    NMS_ATTRS,
    best_scores,
    infer_found_boxes,
    keep_best,
    overlaps,
    suppress,
    with_images,
)
from fleetx.static.shapes.lod import Lods, WithLod, offsets_of


def _decay(overlap: Tensor, use_gaussian: bool, sigma: float) -> Tensor:
    """Return the factor of each score, from overlaps of boxes sorted by score."""
    before = overlap.tril(-1)
    worst = before.amax(1)  # how much each box overlaps with a better one
    if use_gaussian:
        factor = ((worst[None, :] ** 2 - before**2) * sigma).exp()
    else:
        factor = (1 - before) / (1 - worst[None, :])
    above = torch.ones_like(before).triu().bool()
    return factor.masked_fill(above, 1.0).amin(1).clamp_max(1.0)


@detached_op("matrix_nms", inputs="BBoxes Scores", outputs="Out Index", infer=infer_found_boxes)
def matrix_nms(
    boxes: Tensor,
    scores: Tensor,
    *,
    background_label: int = 0,
    score_threshold: float = 0.0,
    post_threshold: float = 0.0,
    nms_top_k: int = -1,
    keep_top_k: int = -1,
    normalized: bool = True,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    lod: Lods,
) -> tuple[WithLod, WithLod]:
    """Lower the scores of boxes that overlap with better ones (SOLOv2's matrix NMS)."""
    del lod
    rows, places = [], []
    extra = 0.0 if normalized else 1.0
    for image, (own, all_scores) in enumerate(zip(boxes, scores, strict=True)):
        found, index = [own.new_zeros(0, own.shape[-1] + 2)], [torch.zeros(0, dtype=torch.int64)]
        for label, score in enumerate(all_scores):
            order = best_scores(score, score_threshold, nms_top_k)
            if label == background_label or not len(order):
                continue
            overlap = box_overlap(own[order], own[order], extra)
            lowered = score[order] * _decay(overlap, use_gaussian, gaussian_sigma)
            stays = lowered > post_threshold
            head = torch.stack([torch.full_like(lowered, label), lowered], 1)
            found.append(torch.cat([head, own[order]], 1)[stays])
            index.append(order[stays])
        every, where = torch.cat(found), torch.cat(index)
        best = every[:, 1].argsort(descending=True, stable=True)
        best = best[:keep_top_k] if keep_top_k > -1 else best
        rows.append(every[best])
        places.append((where[best] + image * own.shape[0]).to(torch.int32)[:, None])
    out = with_images(rows, boxes.shape[-1] + 2, boxes, mark=False)
    return out, WithLod(torch.cat(places), [offsets_of(len(part) for part in places)])


def _merge_neighbours(
    boxes: Tensor, scores: Tensor, threshold: float, normalized: bool
) -> list[bool]:
    """Merge runs of boxes that overlap, weighted by score, in place; return which boxes stay."""
    stays = [False] * len(boxes)
    last = 0
    for i in range(1, len(boxes)):
        if overlaps(boxes[[i, last]], normalized)[0, 1] > threshold:
            weight = scores[i] + scores[last]
            boxes[last] = (boxes[i] * scores[i] + boxes[last] * scores[last]) / weight
            scores[last] = weight
        else:
            stays[last] = True
            last = i
    if len(boxes):
        stays[last] = True
    return stays


@detached_op("locality_aware_nms", inputs="BBoxes Scores", attrs=NMS_ATTRS, infer=infer_found_boxes)
def locality_aware_nms(
    boxes: Tensor,
    scores: Tensor,
    *,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float,
    nms_eta: float,
    keep_top_k: int,
    background_label: int = -1,
    normalized: bool = True,
    lod: Lods,
) -> WithLod:
    """Merge neighbours in the order of the rows first, then suppress (EAST's text boxes)."""
    del lod
    boxes, scores = boxes.clone(), scores.clone()
    rows = []
    for own, all_scores in zip(boxes, scores, strict=True):
        picked: dict[int, Tensor] = {}
        for label, score in enumerate(all_scores):
            if label == background_label:
                continue
            stays = torch.tensor(_merge_neighbours(own, score, nms_threshold, normalized))
            valid = torch.where(stays, score, -torch.inf)
            order = best_scores(valid, score_threshold, nms_top_k)
            kept = suppress(overlaps(own[order], normalized), nms_threshold, nms_eta)
            picked[label] = order[kept]
        picked = keep_best(picked, all_scores, keep_top_k)
        classes = torch.tensor([c for c, kept in picked.items() for _ in kept], dtype=torch.int64)
        index = torch.cat(list(picked.values())) if picked else classes
        head = torch.stack([classes.to(own.dtype), all_scores[classes, index]], 1)
        rows.append(torch.cat([head, own[index]], 1))
    return with_images(rows, boxes.shape[-1] + 2, boxes, mark=True)


@detached_op(
    "retinanet_detection_output",
    inputs="BBoxes* Scores* Anchors* ImInfo",
    attrs=NMS_ATTRS,
    infer=infer_found_boxes,
)
def retinanet_detection_output(
    boxes: list[Tensor],
    scores: list[Tensor],
    anchors: list[Tensor],
    info: Tensor,
    *,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float,
    nms_eta: float,
    keep_top_k: int,
    lod: Lods,
) -> WithLod:
    """Decode the best boxes of each level, and suppress class by class over all levels."""
    del lod
    rows = []
    for image, (height, width, scale) in enumerate(info.tolist()):
        found, values, labels = [], [], []
        for level, (deltas, score, anchor) in enumerate(zip(boxes, scores, anchors, strict=True)):
            last = level == len(boxes) - 1
            flat = score[image].reshape(-1)
            order = best_scores(flat, 0.0 if last else score_threshold, nms_top_k)
            place = torch.div(order, score.shape[-1], rounding_mode="floor")
            box = decode_boxes(deltas[image][place], anchor[place], 1.0, None) / scale
            high = [round(width / scale) - 1, round(height / scale) - 1] * 2
            found.append(torch.minimum(box, box.new_tensor(high)).clamp_min(0))
            values.append(flat[order])
            labels.append(order % score.shape[-1])
        box, value, label = (torch.cat(parts) for parts in (found, values, labels))
        kept = []
        for c in label.unique().tolist():
            own = (label == c).nonzero().reshape(-1)
            own = own[value[own].argsort(descending=True, stable=True)]
            overlap = box_overlap(box[own], box[own], 1.0)
            kept.append(own[suppress(overlap, nms_threshold, nms_eta)])
        index = torch.cat(kept) if kept else torch.zeros(0, dtype=torch.int64)
        index = index[value[index].argsort(descending=True, stable=True)][:keep_top_k]
        # Classes count from 1 here: the network has none for the background.
        head = torch.stack([label[index].to(box.dtype) + 1, value[index]], 1)
        rows.append(torch.cat([head, box[index]], 1))
    return with_images(rows, 6, boxes[0], mark=False)
