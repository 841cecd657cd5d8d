"""Boxes laid over a feature map in a regular pattern: priors of SSD, anchors of region proposals.

All are [height, width, boxes per place, 4] with (left, top, right, bottom); the second output
repeats the four variances for each box.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import detached_op
from fleetx.static.shapes.infer_rules import checked

_VARIANCES = [0.1, 0.1, 0.2, 0.2]


def _centers(x: Tensor, steps: tuple[float, float], offset: float) -> tuple[Tensor, Tensor]:
    """Return the x and y coordinates of the places of a feature map."""
    height, width = x.shape[2:]
    xs = (torch.arange(width, dtype=x.dtype, device=x.device) + offset) * steps[0]
    ys = (torch.arange(height, dtype=x.dtype, device=x.device) + offset) * steps[1]
    return xs, ys


def _steps(x: Tensor, image: Tensor, step_w: float, step_h: float) -> tuple[float, float]:
    """Return the distance of centres in pixels: the attributes, or what fills the image."""
    if step_w and step_h:
        return step_w, step_h
    return image.shape[3] / x.shape[3], image.shape[2] / x.shape[2]


def _around(xs: Tensor, ys: Tensor, relative: list[tuple[float, float, float, float]]) -> Tensor:
    """Return boxes from offsets relative to each centre, [height, width, boxes, 4]."""
    base = torch.tensor(relative, dtype=xs.dtype, device=xs.device)
    at = torch.stack(torch.broadcast_tensors(xs[None, :], ys[:, None]), -1)
    return at.repeat(1, 1, 2)[:, :, None, :] + base


def _variances_like(boxes: Tensor, variances: list[float]) -> Tensor:
    values = torch.tensor(variances, dtype=boxes.dtype, device=boxes.device)
    return values.expand(*boxes.shape[:-1], len(variances)).contiguous()


def _centered(width: float, height: float) -> tuple[float, float, float, float]:
    return -width / 2, -height / 2, width / 2, height / 2


def _all_ratios(given: list[float], flip: bool) -> list[float]:
    """Return 1 and the given ratios, each once, with their reciprocals if `flip`."""
    ratios = [1.0]
    for ratio in given:
        if all(abs(ratio - other) >= 1e-6 for other in ratios):
            ratios += [ratio, 1.0 / ratio] if flip else [ratio]
    return ratios


def _image_scale(image: Tensor, like: Tensor) -> Tensor:
    height, width = image.shape[2:]
    return torch.tensor([width, height, width, height], dtype=like.dtype, device=like.device)


def _pairs_of_sizes(op: Any, block: Any) -> str | None:
    small, large = op.attrs["min_sizes"], op.attrs["max_sizes"]
    if large and len(large) != len(small):
        return f"max_sizes {list(large)} must have as many numbers as min_sizes {list(small)}."
    if any(b <= a for a, b in zip(small, large, strict=bool(large))):
        return f"max_sizes {list(large)} must be greater than min_sizes {list(small)}."
    return None


@detached_op(
    "prior_box",
    infer=checked(_pairs_of_sizes),
    inputs="Input Image",
    outputs="Boxes Variances",
)
def prior_box(
    x: Tensor,
    image: Tensor,
    *,
    min_sizes: list[float] = [],
    max_sizes: list[float] = [],
    aspect_ratios: list[float] = [],
    variances: list[float] = _VARIANCES,
    flip: bool = True,
    clip: bool = True,
    step_w: float = 0.0,
    step_h: float = 0.0,
    offset: float = 0.5,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return boxes of each size and ratio, as shares of the image."""
    relative = []
    for i, size in enumerate(min_sizes):
        ratios = _all_ratios(aspect_ratios, flip)
        by_ratio = [_centered(size * math.sqrt(r), size / math.sqrt(r)) for r in ratios]
        between = [_centered(*[math.sqrt(size * max_sizes[i])] * 2)] if max_sizes else []
        if min_max_aspect_ratios_order:
            relative += [by_ratio[0], *between, *by_ratio[1:]]
        else:
            relative += by_ratio + between
    xs, ys = _centers(x, _steps(x, image, step_w, step_h), offset)
    boxes = _around(xs, ys, relative) / _image_scale(image, x)
    if clip:
        boxes = boxes.clamp(0.0, 1.0)
    return boxes, _variances_like(boxes, variances)


@detached_op("density_prior_box", inputs="Input Image", outputs="Boxes Variances")
def density_prior_box(
    x: Tensor,
    image: Tensor,
    *,
    variances: list[float] = _VARIANCES,
    clip: bool = True,
    flatten_to_2d: bool = False,
    step_w: float = 0.0,
    step_h: float = 0.0,
    offset: float = 0.5,
    fixed_sizes: list[float] = [],
    fixed_ratios: list[float] = [],
    densities: list[int] = [],
) -> tuple[Tensor, Tensor]:
    """Return boxes like `prior_box`, each several times within the cell of its place."""
    steps = _steps(x, image, step_w, step_h)
    cell = int(sum(steps) / 2)
    relative = []
    for size, density in zip(fixed_sizes, densities, strict=True):
        shift = cell // density
        for ratio in fixed_ratios:
            box = _centered(size * math.sqrt(ratio), size / math.sqrt(ratio))
            moves = [shift / 2 - cell / 2 + i * shift for i in range(density)]
            relative += [
                (box[0] + right, box[1] + down, box[2] + right, box[3] + down)
                for down in moves
                for right in moves
            ]
    xs, ys = _centers(x, steps, offset)
    boxes = _around(xs, ys, relative) / _image_scale(image, x)
    boxes = torch.cat([boxes[..., :2].clamp_min(0.0), boxes[..., 2:].clamp_max(1.0)], -1)
    if clip:
        boxes = boxes.clamp(0.0, 1.0)
    if flatten_to_2d:
        boxes = boxes.reshape(-1, 4)
    return boxes, _variances_like(boxes, variances)


@detached_op("anchor_generator", inputs="Input", outputs="Anchors Variances")
def anchor_generator(
    x: Tensor,
    *,
    anchor_sizes: list[float] = [],
    aspect_ratios: list[float] = [],
    variances: list[float] = _VARIANCES,
    stride: list[float] = [16.0, 16.0],
    offset: float = 0.5,
) -> tuple[Tensor, Tensor]:
    """Return boxes of each ratio and size, in pixels."""
    relative = []
    for ratio in aspect_ratios:
        # A cell of the ratio with whole sides, which the sizes then scale.
        width = math.floor(math.sqrt(stride[0] * stride[1] / ratio) + 0.5)
        height = math.floor(width * ratio + 0.5)
        for size in anchor_sizes:
            sides = size / stride[0] * width - 1, size / stride[1] * height - 1
            relative.append(_centered(*sides))
    xs, ys = _centers(x, (stride[0], stride[1]), 0.0)
    boxes = _around(xs + offset * (stride[0] - 1), ys + offset * (stride[1] - 1), relative)
    return boxes, _variances_like(boxes, variances)
