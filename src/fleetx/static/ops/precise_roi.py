"""Precise pooling of regions: the integral of the interpolated image over each bin of a box.

Linear interpolation spreads a pixel as a triangle along both axes, so the integral over a bin is a
sum of pixels, each times one integral of a triangle per axis. The result is differentiable with
respect to the boxes too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import op
from fleetx.static.ops.roi import images_of_boxes, infer_pooled
from fleetx.static.shapes.lod import Lods


def _up_to(ends: Tensor, size: int) -> Tensor:
    """Return [..., size]: the integral of each pixel's triangle up to each end."""
    at = (ends[..., None] - torch.arange(size, device=ends.device)).clamp(-1.0, 1.0)
    return torch.where(at < 0, (1 + at) ** 2 / 2, 1 - (1 - at) ** 2 / 2)


def _spread(start: Tensor, length: Tensor, bins: int, size: int) -> Tensor:
    """Return [boxes, bins, size]: the integral of each pixel's triangle over each bin."""
    ends = torch.arange(bins + 1, dtype=start.dtype, device=start.device) * (length / bins)[:, None]
    return _up_to(start[:, None] + ends, size).diff(dim=1)


@op("prroi_pool", inputs="X ROIs BatchRoINums?!", infer=infer_pooled, lod="none")
def prroi_pool(
    x: Tensor,
    rois: Tensor,
    counts: Tensor | None,
    *,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    lod: Lods,
) -> Tensor:
    """Average the interpolated image over each bin; zeros lie outside of it."""
    images = images_of_boxes(rois, None, counts, lod, "prroi_pool")
    left, top, right, bottom = (rois * spatial_scale).unbind(1)
    width, height = (right - left).clamp_min(0.0), (bottom - top).clamp_min(0.0)
    rows = _spread(top, height, pooled_height, x.shape[2])
    columns = _spread(left, width, pooled_width, x.shape[3])
    area = width * height / (pooled_height * pooled_width)
    whole = area > 0
    factor = torch.where(whole, 1 / torch.where(whole, area, 1.0), 0.0)
    index = torch.tensor(images, dtype=torch.int64, device=x.device)
    found = torch.einsum("nchw,niw->nchi", x[index], columns)
    return torch.einsum("nchi,njh->ncji", found, rows) * factor[:, None, None, None]
