"""Quadrangles of an image, such as lines of text at an angle, as rectangles of one size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import op
from fleetx.static.ops.roi import images_of_boxes
from fleetx.static.shapes.infer_rules import known, refuse, set_output
from fleetx.static.shapes.lod import Lods, WithLod, lod_of

_NEAR = 1e-4


@known("X", "ROIs")
def _infer(op: Any, block: Any, x: Any, rois: Any) -> None:
    if len(x.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != 8:
        raise refuse(op, block, "X must be [N, C, H, W] and quadrangles [quadrangles, 8].")
    size = op.attr("transformed_height"), op.attr("transformed_width")
    if min(size) < 1:
        raise refuse(op, block, f"the transformed size must be positive, not {size}.")
    shape = (rois.shape[0], x.shape[1], *size)
    set_output(op, block, "Out", shape, x.dtype, rois.lod_level)
    set_output(op, block, "Mask", (rois.shape[0], 1, *size), VarType.INT32)
    set_output(op, block, "TransformMatrix", (rois.shape[0], 9), x.dtype)


def _matrices(xs: Tensor, ys: Tensor, height: int, width: int) -> Tensor:
    """Return the projection of a rectangle's pixels into each quadrangle, [quadrangles, 9].

    The rectangle keeps the quadrangle's proportions; columns beyond it stay empty.
    """
    sides = ((xs - xs.roll(-1, 1)) ** 2 + (ys - ys.roll(-1, 1)) ** 2).sqrt()
    across, along = (sides[:, 1] + sides[:, 3]) / 2, (sides[:, 0] + sides[:, 2]) / 2
    rows = max(2, height)
    columns = (along * (rows - 1) / across + 0.5).floor() + 1
    columns = columns.clamp_max(width).clamp_min(2) - 1
    (x0, x1, x2, x3), (y0, y1, y2, y3) = xs.unbind(1), ys.unbind(1)
    dx1, dx2, dx3 = x1 - x2, x3 - x2, x0 - x1 + x2 - x3
    dy1, dy2, dy3 = y1 - y2, y3 - y2, y0 - y1 + y2 - y3
    whole = dx1 * dy2 - dx2 * dy1 + 1e-5
    a = (dx3 * dy2 - dx2 * dy3) / whole / columns
    b = (dx1 * dy3 - dx3 * dy1) / whole / (rows - 1)
    table = []
    for c0, c1, c3 in ((x0, x1, x3), (y0, y1, y3)):
        table += [
            (c1 - c0 + a * columns * c1) / columns,
            (c3 - c0 + b * (rows - 1) * c3) / (rows - 1),
            c0,
        ]
    return torch.stack([*table, a, b, torch.ones_like(a)], 1)


def _inside(px: Tensor, py: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
    """Return whether points [n, places] are on the edges of quadrangles [n, 4] or inside."""
    on_edge = torch.zeros_like(px, dtype=torch.bool)
    crossings = torch.zeros_like(px, dtype=torch.int64)
    for i in range(4):
        x0, y0, x1, y1 = (v[:, k, None] for k in (i, (i + 1) % 4) for v in (xs, ys))
        flat = (y0 - y1).abs() < _NEAR
        low_x, high_x = torch.minimum(x0, x1), torch.maximum(x0, x1)
        low_y, high_y = torch.minimum(y0, y1), torch.maximum(y0, y1)
        on_flat = ((py - y0).abs() < _NEAR) & ((py - y1).abs() < _NEAR)
        on_flat &= (px > low_x - _NEAR) & (px < high_x + _NEAR)
        at = (py - y0) * (x1 - x0) / torch.where(flat, 1.0, y1 - y0) + x0
        on_line = ((at - px).abs() < _NEAR) & (py > low_y - _NEAR) & (py < high_y + _NEAR)
        on_edge |= torch.where(flat, on_flat, on_line)
        met = ~flat & (py >= low_y + _NEAR) & (py - high_y <= _NEAR)
        on_edge |= met & ((at - px).abs() < _NEAR)
        crossings += met & (at - px > _NEAR)
    return on_edge | (crossings % 2 == 1)


def _neighbours(at: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the two pixels around each place along one axis, and the second one's share."""
    at = torch.where(at < _NEAR, 0.0, at)
    low = at.floor().clamp(0, size - 1)
    at = torch.where(low >= size - 1, low, at)
    return low.long(), (low + 1).clamp_max(size - 1).long(), at - low


@op(
    "roi_perspective_transform",
    inputs="X ROIs!",
    outputs="Out Mask TransformMatrix Out2InIdx? Out2InWeights?",
    infer=_infer,
    lod="none",
)
def roi_perspective_transform(
    x: Tensor,
    rois: Tensor,
    *,
    spatial_scale: float = 1.0,
    transformed_height: int = 1,
    transformed_width: int = 1,
    lod: Lods,
) -> tuple[WithLod, Tensor, Tensor, None, None]:
    """Return the rectangles, where they show the image, and the matrices of the projections.

    Paddle's last two outputs are memory of its GPU kernel, and stay empty.
    """
    images = images_of_boxes(rois, None, None, lod, "roi_perspective_transform")
    image = torch.tensor(images, dtype=torch.int64, device=x.device)
    height, width = x.shape[2:]
    xs, ys = rois[:, 0::2] * spatial_scale, rois[:, 1::2] * spatial_scale
    matrices = _matrices(xs, ys, transformed_height, transformed_width)
    rows = torch.arange(transformed_height, device=x.device).repeat_interleave(transformed_width)
    columns = torch.arange(transformed_width, device=x.device).repeat(transformed_height)
    u, v, w = (
        matrices[:, i, None] * columns + matrices[:, i + 1, None] * rows + matrices[:, i + 2, None]
        for i in (0, 3, 6)
    )
    px, py = u / w, v / w
    shown = _inside(px, py, xs, ys)
    for at, size in ((px, width), (py, height)):
        shown &= (at > -0.5 + _NEAR) & (at < size - 0.5 - _NEAR)
    px, py = torch.where(shown, px, 0.0), torch.where(shown, py, 0.0)
    left, right, part_x = _neighbours(px, width)
    top, bottom, part_y = _neighbours(py, height)
    flat = x.flatten(2).movedim(1, 2)  # [images, pixels, channels]
    total = torch.zeros((), dtype=x.dtype, device=x.device)
    for row, share_y in ((top, 1 - part_y), (bottom, part_y)):
        for column, share_x in ((left, 1 - part_x), (right, part_x)):
            share = torch.where(shown, share_y * share_x, 0.0)
            total = total + flat[image[:, None], row * width + column] * share[..., None]
    shape = (transformed_height, transformed_width)
    out = total.movedim(2, 1).reshape(len(rois), x.shape[1], *shape)
    mask = shown.to(torch.int32).reshape(len(rois), 1, *shape)
    levels = lod_of(lod, "ROIs", "roi_perspective_transform")
    return WithLod(out, levels), mask, matrices, None, None
