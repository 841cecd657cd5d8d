"""Pooling of regions of interest: boxes of an image, read as small feature maps of one size.

Boxes are (left, top, right, bottom) in pixels of the original image; which image one belongs to is
told by its LoD, by the offsets in RoisLod, or by the counts in RoisNum.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import shapes
from fleetx.static.shapes.lod import Lods, lengths_of, lod_of


def images_of_boxes(
    rois: torch.Tensor,
    offsets: torch.Tensor | None,
    counts: torch.Tensor | None,
    lod: Lods,
    op_type: str,
) -> list[int]:
    """Return the number of each box's image."""
    if counts is not None:
        sizes = counts.reshape(-1).tolist()
    elif offsets is not None:
        sizes = lengths_of(offsets.reshape(-1).tolist())
    else:
        sizes = lengths_of(lod_of(lod, "ROIs", op_type)[-1])
    found = [image for image, size in enumerate(sizes) for _ in range(size)]
    if len(found) != len(rois):
        raise ValueError(f"{op_type} got {len(rois)} boxes, but lengths for {len(found)}.")
    return found


def _pooled(op: Any, x: Any, rois: Any) -> dict[str, Any]:
    """Return the shapes of a pooling: [boxes, channels, rows, columns]."""
    channels = op.attr("output_channels") if op.type == "psroi_pool" else x.shape[1]
    shape = (rois.shape[0], channels, op.attr("pooled_height"), op.attr("pooled_width"))
    return {"Out": (shape, x.dtype), "Argmax": (shape, VarType.INT64)}


infer_pooled = shapes("X ROIs", _pooled)


def _reads(
    at: torch.Tensor, size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the two pixels around each place, the second's share, and whether it is inside."""
    inside = (at >= -1.0) & (at <= size)
    at = at.clamp(0.0, size - 1)
    low = at.floor().long().clamp_max(size - 1)
    return low, (low + 1).clamp_max(size - 1), at - low, inside


def _sample(features: torch.Tensor, ys: torch.Tensor, xs: torch.Tensor) -> torch.Tensor:
    """Return [channels, len(ys), len(xs)], by linear interpolation, zero outside the image."""
    for axis, at in ((1, ys), (2, xs)):
        low, high, share, inside = _reads(at, features.shape[axis])
        shape = [-1, 1] if axis == 1 else [-1]
        share, inside = share.reshape(shape), inside.reshape(shape)
        first, second = features.index_select(axis, low), features.index_select(axis, high)
        features = (first + (second - first) * share) * inside
    return features


@op("roi_align", inputs="X ROIs! RoisLod?! RoisNum?!", infer=infer_pooled, lod="none")
def _roi_align(
    x: torch.Tensor,
    rois: torch.Tensor,
    offsets: torch.Tensor | None,
    counts: torch.Tensor | None,
    *,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    sampling_ratio: int = -1,
    aligned: bool = False,
    lod: Lods,
) -> torch.Tensor:
    """Average samples taken at regular places of each of a box's bins."""
    pieces = []
    images = images_of_boxes(rois, offsets, counts, lod, "roi_align")
    shift = 0.5 if aligned else 0.0
    for image, box in zip(images, rois.tolist(), strict=True):
        left, top, right, bottom = (v * spatial_scale - shift for v in box)
        width, height = right - left, bottom - top
        if not aligned:
            width, height = max(width, 1.0), max(height, 1.0)
        rows = sampling_ratio if sampling_ratio > 0 else math.ceil(height / pooled_height)
        columns = sampling_ratio if sampling_ratio > 0 else math.ceil(width / pooled_width)
        places = []
        for start, length, bins, per_bin in (
            (top, height, pooled_height, rows),
            (left, width, pooled_width, columns),
        ):
            steps = torch.arange(bins * per_bin, dtype=x.dtype, device=x.device) + 0.5
            places.append(start + steps * (length / (bins * per_bin)))
        found = _sample(x[image], *places)
        grid = found.reshape(x.shape[1], pooled_height, rows, pooled_width, columns)
        pieces.append(grid.mean((2, 4)))
    if not pieces:
        return x.new_zeros((0, x.shape[1], pooled_height, pooled_width))
    return torch.stack(pieces)


def _nearest(value: float) -> int:
    """Return the nearest whole number, the one farther from zero in doubt."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def _bins(start: int, length: int, bins: int, size: int) -> list[tuple[int, int]]:
    """Return the first pixel and the one after the last of each bin, kept inside the image."""
    step = length / bins
    ends = []
    for i in range(bins):
        first = min(max(math.floor(i * step) + start, 0), size)
        ends.append((first, min(max(math.ceil((i + 1) * step) + start, 0), size)))
    return ends


@op(
    "roi_pool",
    inputs="X ROIs! RoisLod?! RoisNum?!",
    outputs="Out Argmax?",
    infer=infer_pooled,
    lod="none",
)
def _roi_pool(
    x: torch.Tensor,
    rois: torch.Tensor,
    offsets: torch.Tensor | None,
    counts: torch.Tensor | None,
    *,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    lod: Lods,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Take the maximum of each of a box's bins, zero for an empty one."""
    channels, height, width = x.shape[1:]
    values, places = [], []
    images = images_of_boxes(rois, offsets, counts, lod, "roi_pool")
    for image, box in zip(images, rois.tolist(), strict=True):
        left, top, right, bottom = (_nearest(v * spatial_scale) for v in box)
        for y0, y1 in _bins(top, max(bottom - top + 1, 1), pooled_height, height):
            for x0, x1 in _bins(left, max(right - left + 1, 1), pooled_width, width):
                if y1 <= y0 or x1 <= x0:
                    values.append(x.new_zeros(channels))
                    places.append(torch.full((channels,), -1, device=x.device))
                    continue
                best, index = x[image, :, y0:y1, x0:x1].reshape(channels, -1).max(1)
                values.append(best)
                places.append((index // (x1 - x0) + y0) * width + index % (x1 - x0) + x0)
    shape = (len(rois), pooled_height, pooled_width, channels)
    if not values:
        empty = (0, channels, pooled_height, pooled_width)
        return x.new_zeros(empty), torch.zeros(empty, dtype=torch.int64, device=x.device)
    out, where = (torch.stack(v).reshape(shape).permute(0, 3, 1, 2) for v in (values, places))
    return out.contiguous(), where.contiguous()


def _float_bins(start: float, length: float, bins: int, size: int) -> list[tuple[int, int]]:
    """Return the bins of a box whose edges lie between pixels, kept inside the image."""
    step = length / bins
    edges = [(math.floor(start + i * step), math.ceil(start + (i + 1) * step)) for i in range(bins)]
    return [(min(max(a, 0), size), min(max(b, 0), size)) for a, b in edges]


@op("psroi_pool", inputs="X ROIs!", infer=infer_pooled, lod="none")
def _psroi_pool(
    x: torch.Tensor,
    rois: torch.Tensor,
    *,
    output_channels: int = 0,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    lod: Lods,
) -> torch.Tensor:
    """Average each of a box's bins in channels of the bin's own."""
    height, width = x.shape[2:]
    parts = x.reshape(x.shape[0], output_channels, pooled_height, pooled_width, height, width)
    values = []
    images = images_of_boxes(rois, None, None, lod, "psroi_pool")
    for image, box in zip(images, rois.tolist(), strict=True):
        left, top = (_nearest(v) * spatial_scale for v in box[:2])
        right, bottom = ((_nearest(v) + 1.0) * spatial_scale for v in box[2:])
        rows = _float_bins(top, max(bottom - top, 0.1), pooled_height, height)
        columns = _float_bins(left, max(right - left, 0.1), pooled_width, width)
        for i, (y0, y1) in enumerate(rows):
            for j, (x0, x1) in enumerate(columns):
                found = parts[image, :, i, j, y0:y1, x0:x1]
                empty = y1 <= y0 or x1 <= x0
                values.append(x.new_zeros(output_channels) if empty else found.mean((1, 2)))
    shape = (len(rois), pooled_height, pooled_width, output_channels)
    return torch.stack(values).reshape(shape).permute(0, 3, 1, 2).contiguous()
