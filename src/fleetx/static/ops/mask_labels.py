"""Targets of Mask R-CNN: the true polygons of objects, drawn into the boxes that found them.

A polygon is drawn as COCO's tools do: its outline is walked in steps of a fifth of a pixel, and a
pixel lies inside if the outline crosses its column an odd number of times above its centre.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import detached_op
from fleetx.static.ops.boxes import box_overlap
from fleetx.static.shapes.infer_rules import input_var, refuse, set_output
from fleetx.static.shapes.lod import LoD, Lods, WithLod, lod_of, offsets_of

Array = np.ndarray[Any, Any]
_FINE = 5.0


def _infer(op: Any, block: Any) -> None:
    rois, polygons = input_var(op, block, "Rois"), input_var(op, block, "GtSegms")
    if rois is None:
        return
    if polygons is not None and (len(polygons.shape) != 2 or polygons.shape[1] != 2):
        raise refuse(op, block, "GtSegms must be points, [points, 2].")
    pixels = op.attr("num_classes") * op.attr("resolution") ** 2
    set_output(op, block, "MaskRois", (-1, 4), rois.dtype, 1)
    set_output(op, block, "RoiHasMaskInt32", (-1, 1), VarType.INT32, 1)
    set_output(op, block, "MaskInt32", (-1, pixels), VarType.INT32, 1)


def _outline(points: Array) -> tuple[Array, Array]:
    """Return the fine pixels of a closed outline, in order."""
    fine = np.trunc(_FINE * points.astype("float64") + 0.5).astype("int64")
    xs, ys = [], []
    for (x0, y0), (x1, y1) in zip(fine, np.roll(fine, -1, 0), strict=True):
        wide, high = abs(x1 - x0), abs(y1 - y0)
        turned = x0 > x1 if wide >= high else y0 > y1
        if turned:
            x0, y0, x1, y1 = x1, y1, x0, y0
        steps = np.arange(max(wide, high) + 1)
        steps = steps[::-1] if turned else steps
        if wide >= high:
            slope = (y1 - y0) / wide if wide else 0.0
            xs.append(steps + x0)
            ys.append(np.trunc(y0 + slope * steps + 0.5).astype("int64"))
        else:
            xs.append(np.trunc(x0 + (x1 - x0) / high * steps + 0.5).astype("int64"))
            ys.append(steps + y0)
    return np.concatenate(xs), np.concatenate(ys)


def draw_polygon(points: Array, size: int) -> Array:
    """Return which pixels of a square lie inside a polygon of points [n, 2], bool [size, size]."""
    xs, ys = _outline(points)
    moved = np.diff(xs) != 0
    x = np.where(xs[1:] < xs[:-1], xs[1:], xs[1:] - 1)[moved]
    y = np.minimum(ys[1:], ys[:-1])[moved]
    column = (x + 0.5) / _FINE - 0.5
    centred = (np.floor(column) == column) & (column >= 0) & (column <= size - 1)
    row = np.ceil(np.clip((y + 0.5) / _FINE - 0.5, 0, size))
    places = (column * size + row)[centred].astype("int64")
    crossings = np.bincount(places, minlength=size * size + 1)[: size * size]
    return (np.cumsum(crossings) % 2 == 1).reshape(size, size).T


def _draw_object(polygons: list[Array], box: Array, size: int) -> Array:
    """Return which pixels of a grid over a box lie inside any of the polygons."""
    scale = np.maximum(box[2:] - box[:2], np.float32(1.0))
    drawn = [draw_polygon((p - box[:2]) * np.float32(size) / scale, size) for p in polygons]
    return np.logical_or.reduce(drawn)


def _enclosing(polygons: list[Array]) -> Array:
    points = np.concatenate(polygons)
    # Paddle's maxima begin at the smallest positive number.
    tiny = np.finfo("float32").tiny
    return np.concatenate([points.min(0), np.maximum(points.max(0), tiny)])


def _objects(points: Array, levels: LoD, first: int, count: int) -> list[list[Array]]:
    """Return the polygons of each object, from the offsets of objects and of polygons."""
    found = []
    for each in range(first, first + count):
        start, end = levels[1][each : each + 2]
        bounds = levels[2][start : end + 1]
        found.append([points[a:b] for a, b in zip(bounds, bounds[1:], strict=False)])
        if not found[-1] or not all(len(p) for p in found[-1]):
            raise ValueError(f"object {each} of generate_mask_labels has an empty polygon.")
    return found


def _of_image(
    boxes: Array, labels: Array, objects: list[list[Array]], scale: Any, classes: int, size: int
) -> tuple[Array, Array, Array]:
    """Return boxes with masks, their numbers among the image's boxes, and the masks."""
    chosen = np.flatnonzero(labels > 0)
    if not len(chosen):  # One box of the background, whose mask is ignored, stands in.
        chosen = np.flatnonzero(labels == 0)[:1]
        targets = np.full((1, classes * size * size), -1, "int32")
        return boxes[:1] / scale * scale, chosen, targets
    if not objects:
        raise ValueError("generate_mask_labels found boxes of objects in an image without any.")
    original = boxes[chosen] / scale
    around = torch.from_numpy(np.stack([_enclosing(o) for o in objects]).astype("float32"))
    best = box_overlap(torch.from_numpy(original), around, 1.0).argmax(1).tolist()
    targets = np.full((len(chosen), classes, size * size), -1, "int32")
    for i, (which, label) in enumerate(zip(best, labels[chosen], strict=True)):
        targets[i, label] = _draw_object(objects[which], original[i], size).reshape(-1)
    return original * scale, chosen, targets.reshape(len(chosen), -1)


@detached_op(
    "generate_mask_labels",
    inputs="ImInfo GtClasses IsCrowd GtSegms Rois LabelsInt32",
    outputs="MaskRois RoiHasMaskInt32 MaskInt32",
    infer=_infer,
)
def generate_mask_labels(
    info: Tensor,
    classes: Tensor,
    crowd: Tensor,
    points: Tensor,
    rois: Tensor,
    labels: Tensor,
    *,
    num_classes: int = 1,
    resolution: int = 1,
    lod: Lods,
) -> tuple[WithLod, WithLod, WithLod]:
    """Return the boxes of objects, their numbers, and masks: -1 except in their own class."""
    name = "generate_mask_labels"
    levels = lod_of(lod, "GtSegms", name)
    if len(levels) != 3:
        raise ValueError(f"GtSegms of {name} needs 3 levels of lengths, but has {len(levels)}.")
    true, found = lod_of(lod, "GtClasses", name)[-1], lod_of(lod, "Rois", name)[-1]
    arrays = [t.detach().cpu().numpy() for t in (info, classes, crowd, points, rois, labels)]
    scales, kinds, crowds, outline, boxes, marks = arrays
    wanted = (kinds.reshape(-1) > 0) & (crowds.reshape(-1) == 0)
    parts: list[tuple[Array, Array, Array]] = []
    counts = []
    for image in range(len(true) - 1):
        start, end = found[image : image + 2]
        if start == end:
            counts.append(0)
            continue
        objects = _objects(outline, levels, true[image], true[image + 1] - true[image])
        usable = [o for o, use in zip(objects, wanted[true[image] :], strict=False) if use]
        own = marks.reshape(-1)[start:end]
        scale = scales[image, 2]
        part = _of_image(boxes[start:end], own, usable, scale, num_classes, resolution)
        parts.append(part)
        counts.append(len(part[0]))
    offsets = [offsets_of(counts)]
    pixels = num_classes * resolution**2
    empty = np.zeros((0, 4), "float32"), np.zeros(0, "int64"), np.zeros((0, pixels), "int32")
    joined = [np.concatenate([e, *p]) for e, p in zip(empty, zip(*parts, strict=True), strict=True)]
    kept, index, masks = (torch.from_numpy(a).to(rois.device) for a in joined)
    return (
        WithLod(kept.to(rois.dtype), offsets),
        WithLod(index.to(torch.int32).reshape(-1, 1), offsets),
        WithLod(masks, offsets),
    )
