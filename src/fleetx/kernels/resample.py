"""Resizing, mirroring and normalising of a part of an image: compiled, or with torch.

`resample(pixels, box, out, flip, scale, shift)` writes the part `box` = (left, top, width, height)
of bytes [height, width, 3] to float32 [3, height, width], times scale plus shift per colour. The
fallback adds in a different order: before scale and shift, values differ by less than 0.001 of a
brightness level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fleetx.kernels import compiled

Array = np.ndarray[Any, Any]
Box = tuple[float, float, float, float]
Colours = tuple[float, float, float]

_LONGEST_SIDE = 1 << 24


def resample_by_torch(
    pixels: Array, box: Box, out: Array, flip: bool, scale: Colours, shift: Colours, /
) -> None:
    """Resample with two matrix products, along the height and along the width."""
    _check(pixels, box, out)
    left, top, width, height = box
    first_row, down = _weights(pixels.shape[0], top, height, out.shape[1])
    first_column, across = _weights(pixels.shape[1], left, width, out.shape[2])
    part = np.ascontiguousarray(
        pixels[first_row : first_row + down.shape[1], first_column : first_column + across.shape[1]]
    )
    # [height, width, 3] -> [out height, width, 3] -> [3, out height, out width]
    rows = down @ torch.from_numpy(part).float().flatten(1)
    planes = rows.view(len(down), -1, 3).permute(2, 0, 1) @ across.T
    if flip:
        planes = planes.flip(2)
    planes = planes * torch.tensor(scale).view(3, 1, 1) + torch.tensor(shift).view(3, 1, 1)
    out[...] = planes.numpy()


def _weights(size: int, start: float, length: float, count: int) -> tuple[int, Tensor]:
    """Return the first required source pixel along a side of `size`, and all weights.

    The filter is a triangle of the width of an output pixel in the source, at least that of a
    source pixel, as in Pillow's BILINEAR. The `count` output pixels are adjacent, starting at
    `start`; weights are [count, source pixels].
    """
    step = length / count
    reach = max(step, 1.0)
    middles = start + (np.arange(count) + 0.5) * step
    # Truncated like a C conversion to integer.
    low = np.clip(np.trunc(middles - reach + 0.5).astype(np.int64), 0, size - 1)
    high = np.maximum(np.minimum(np.trunc(middles + reach + 0.5).astype(np.int64), size), low + 1)
    first = int(low.min())
    columns = np.arange(first, int(high.max()))
    weights = 1 - np.abs(columns + 0.5 - middles[:, None]) / reach
    inside = (columns >= low[:, None]) & (columns < high[:, None])
    weights = np.where(inside, np.maximum(weights, 0), 0)
    outside = weights.sum(1) == 0  # a box outside the source: its nearest pixel
    weights[outside, low[outside] - first] = 1
    weights /= weights.sum(1, keepdims=True)
    return first, torch.from_numpy(weights.astype(np.float32))


def _check(pixels: Array, box: Box, out: Array) -> None:
    is_picture = pixels.ndim == 3 and pixels.itemsize == 1 and pixels.shape[2] == 3
    if not is_picture or pixels.strides[1:] != (3, 1) or not _are_sides(pixels.shape[:2]):
        raise ValueError("pixels must be bytes [height, width, 3], row by row")
    is_result = out.ndim == 3 and out.dtype == np.float32 and out.shape[0] == 3
    if not is_result or not _are_sides(out.shape[1:]):
        raise ValueError("out must be float32 [3, height, width]")
    if not (all(abs(each) < 1e6 for each in box) and box[2] > 0 and box[3] > 0):
        raise ValueError("box must be (left, top, width, height) of some size")


def _are_sides(sides: tuple[int, ...]) -> bool:
    return all(1 <= side <= _LONGEST_SIDE for side in sides)


if TYPE_CHECKING or compiled.is_there("fleetx.kernels._resample"):
    from fleetx.kernels._resample import resample
else:
    resample = resample_by_torch
