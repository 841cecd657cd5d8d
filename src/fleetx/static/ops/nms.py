"""Non-maximum suppression: keep the best-scoring box among those that overlap too much.

Outputs have a row (class, score, corners) per box, with a sequence per image. A batch without any
box gives the single value -1, unless the op returns indices too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import Attr, op
from fleetx.static.ops.boxes import box_overlap
from fleetx.static.shapes.infer_rules import shapes
from fleetx.static.shapes.lod import Lods, WithLod, lengths_of, lod_of, offsets_of

NMS_ATTRS = {
    "score_threshold": Attr("FLOAT", 0.0),
    "nms_top_k": Attr("INT", -1),
    "nms_threshold": 0.3,
    "nms_eta": 1.0,
    "keep_top_k": Attr("INT", -1),
}


def best_scores(scores: Tensor, threshold: float, top_k: int) -> Tensor:
    """Return the indices of scores above the threshold, best first, at most `top_k` (-1: all)."""
    order = scores.argsort(descending=True, stable=True)
    order = order[scores[order] > threshold]
    return order[:top_k] if top_k > -1 else order


def suppress(overlap: Tensor, threshold: float, eta: float, limit: int = -1) -> list[int]:
    """Return which rows stay, given overlaps of boxes sorted by score.

    With eta < 1 the threshold shrinks after each kept box while it is above 0.5.
    """
    count = len(overlap)
    kept: list[int] = []
    if eta >= 1:  # the usual case, by rows
        gone = torch.zeros(count, dtype=torch.bool)
        over = (overlap > threshold).cpu()
        for i in range(count):
            if not gone[i]:
                kept.append(i)
                if len(kept) == limit:
                    break
                gone |= over[i]
        return kept
    rows = overlap.tolist()
    for i in range(count):
        if all(rows[i][j] <= threshold for j in kept):
            kept.append(i)
            if len(kept) == limit:
                break
            if threshold > 0.5:
                threshold *= eta
    return kept


def polygon_overlap(polygons: Tensor) -> Tensor:
    """Return intersection over union of all pairs of convex polygons (x1, y1, x2, y2, ...)."""
    points = [list(zip(p[0::2], p[1::2], strict=True)) for p in polygons.tolist()]
    areas = [_area(p) for p in points]
    out = torch.zeros(len(points), len(points), dtype=polygons.dtype)
    for i, first in enumerate(points):
        for j in range(i + 1):
            common = _area(_intersection(first, points[j]))
            if areas[i] and areas[j] and common:
                out[i, j] = out[j, i] = common / (areas[i] + areas[j] - common)
    return out


Point = tuple[float, float]


def _signed_area(points: list[Point]) -> float:
    turned = points[1:] + points[:1]
    return sum(a * d - b * c for (a, b), (c, d) in zip(points, turned, strict=True)) / 2


def _area(points: list[Point]) -> float:
    return abs(_signed_area(points)) if points else 0.0


def _intersection(first: list[Point], second: list[Point]) -> list[Point]:
    """Cut a polygon by the edges of a convex one (Sutherland and Hodgman)."""
    if _signed_area(second) < 0:
        second = second[::-1]
    for (x0, y0), (x1, y1) in zip(second, second[1:] + second[:1], strict=True):
        sides = [(x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) for x, y in first]
        cut: list[Point] = []
        for i, (point, side) in enumerate(zip(first, sides, strict=True)):
            before, side_before = first[i - 1], sides[i - 1]
            if (side >= 0) != (side_before >= 0):
                share = side_before / (side_before - side)
                cut.append(
                    (
                        before[0] + share * (point[0] - before[0]),
                        before[1] + share * (point[1] - before[1]),
                    )
                )
            if side >= 0:
                cut.append(point)
        first = cut
    return first


def overlaps(boxes: Tensor, normalized: bool) -> Tensor:
    """Return overlaps of all pairs of boxes or polygons."""
    if boxes.shape[-1] == 4:
        return box_overlap(boxes, boxes, 0.0 if normalized else 1.0)
    return polygon_overlap(boxes)


def with_images(rows: list[Tensor], width: int, like: Tensor, *, mark: bool) -> WithLod:
    """Return the rows of all images as sequences; `mark` writes -1 if there are none."""
    offsets = offsets_of(len(part) for part in rows)
    if not offsets[-1] and mark:
        return WithLod(like.new_full((1, 1), -1.0), [[0, 1]])
    out = torch.cat(rows) if rows else like.new_zeros(0, width)
    return WithLod(out, [offsets])


def keep_best(picked: dict[int, Tensor], scores: Tensor, limit: int) -> dict[int, Tensor]:
    """Return the indices by class of the best `limit` boxes (-1: all)."""
    labels = [label for label, index in picked.items() for _ in index]
    if limit < 0 or len(labels) <= limit:
        return picked
    every = torch.cat(list(picked.values()))
    label = torch.tensor(labels)
    best = scores[label, every].argsort(descending=True, stable=True)[:limit]
    return {c: every[best[label[best] == c]] for c in picked}


def _one_image(
    boxes: Tensor, scores: Tensor, by_class: bool, settings: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return classes, indices and rows of what stays; scores are [classes, boxes]."""
    picked: dict[int, Tensor] = {}
    for label in range(len(scores)):
        if label == settings["background_label"]:
            continue
        own = boxes[:, label] if by_class else boxes
        order = best_scores(scores[label], settings["score_threshold"], settings["nms_top_k"])
        overlap = overlaps(own[order], settings["normalized"])
        picked[label] = order[suppress(overlap, settings["nms_threshold"], settings["nms_eta"])]
    picked = keep_best(picked, scores, settings["keep_top_k"])
    if by_class:
        picked = {label: index.sort().values for label, index in picked.items()}
    classes = torch.tensor([c for c, index in picked.items() for _ in index], dtype=torch.int64)
    index = torch.cat(list(picked.values())) if picked else classes
    own = boxes[index, classes] if by_class else boxes[index]
    head = torch.stack([classes.to(boxes.dtype), scores[classes, index]], 1)
    return classes, index, torch.cat([head, own], 1)


# Each box that is found is a class, a score and corners.
infer_found_boxes = shapes(
    "BBoxes",
    lambda op, boxes: {
        "Out": ((-1, boxes.shape[-1] + 2), boxes.dtype, 1),
        "Index": ((-1, 1), VarType.INT32, 1),
    },
)


def _multiclass_nms(
    boxes: Tensor, scores: Tensor, lod: Lods, settings: dict[str, Any], *, mark: bool
) -> tuple[WithLod, WithLod]:
    by_class = scores.dim() == 2
    if by_class:
        lengths = lengths_of(lod_of(lod, "BBoxes", "multiclass_nms")[-1])
        images = list(zip(boxes.split(lengths), scores.split(lengths), strict=True))
        images = [(b, s.t()) for b, s in images]
    else:
        images = list(zip(boxes, scores, strict=True))
    rows, places, first = [], [], 0
    for own_boxes, own_scores in images:
        label, index, found = _one_image(own_boxes, own_scores, by_class, settings)
        rows.append(found)
        classes = len(own_scores)
        place = index * classes + label if by_class else index
        places.append((first + place).to(torch.int32)[:, None])
        first += len(own_boxes) * (classes if by_class else 1)
    out = with_images(rows, boxes.shape[-1] + 2, boxes, mark=mark)
    offsets = offsets_of(len(part) for part in rows)
    index_out = torch.cat(places) if places else torch.zeros(0, 1, dtype=torch.int32)
    return out, WithLod(index_out, [offsets])


_MULTI: dict[str, Any] = {
    "inputs": "BBoxes Scores",
    "attrs": {"background_label": 0, **NMS_ATTRS, "normalized": True},
    "grad": None,
    "infer": infer_found_boxes,
    "lod": "none",
}


@op("multiclass_nms", **_MULTI)
def multiclass_nms(boxes: Tensor, scores: Tensor, *, lod: Lods, **settings: Any) -> WithLod:
    """Suppress boxes class by class."""
    return _multiclass_nms(boxes, scores, lod, settings, mark=True)[0]


@op("multiclass_nms2", outputs="Out Index", **_MULTI)
def multiclass_nms2(
    boxes: Tensor, scores: Tensor, *, lod: Lods, **settings: Any
) -> tuple[WithLod, WithLod]:
    """Suppress boxes class by class, and return their indices."""
    return _multiclass_nms(boxes, scores, lod, settings, mark=False)
