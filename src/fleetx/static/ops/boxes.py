"""Arithmetic on boxes (left, top, right, bottom): overlaps, coding relative to others, clipping.

Boxes are shares of the image, or pixels; then a box contains its right and bottom pixels too, and
is one wider and higher than the difference of its corners.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import checked
from fleetx.static.shapes.lod import Lods, lengths_of, lod_of


def box_area(boxes: Tensor, extra: float) -> Tensor:
    """Return the areas; boxes with corners the wrong way round have none."""
    width, height = boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1]
    return torch.where((width < 0) | (height < 0), 0.0, (width + extra) * (height + extra))


def box_overlap(x: Tensor, y: Tensor, extra: float = 0.0) -> Tensor:
    """Return intersection over union of each box of x with each of y, [len(x), len(y)]."""
    low = torch.maximum(x[:, None, :2], y[None, :, :2])
    high = torch.minimum(x[:, None, 2:], y[None, :, 2:])
    apart = (high < low).any(-1)
    common = (high - low + extra).prod(-1)
    union = box_area(x, extra)[:, None] + box_area(y, extra)[None, :] - common
    return torch.where(apart, 0.0, common / union)


@op("iou_similarity", inputs="X Y", grad=None)
def iou_similarity(x: Tensor, y: Tensor, *, box_normalized: bool = True) -> Tensor:
    """Return intersection over union of all pairs."""
    extra = 0.0 if box_normalized else 1.0
    low = torch.maximum(x[:, None, :2], y[None, :, :2])
    high = torch.minimum(x[:, None, 2:], y[None, :, 2:])
    common = (high - low + extra).clamp_min(0).prod(-1)
    areas = [(b[:, 2] - b[:, 0] + extra) * (b[:, 3] - b[:, 1] + extra) for b in (x, y)]
    return common / (areas[0][:, None] + areas[1][None, :] - common)


def center_form(boxes: Tensor, extra: float) -> tuple[Tensor, Tensor]:
    """Return centres and sizes, [..., 2] each."""
    size = boxes[..., 2:] - boxes[..., :2] + extra
    return boxes[..., :2] + size / 2, size


def decode_boxes(deltas: Tensor, priors: Tensor, extra: float, limit: float | None) -> Tensor:
    """Return boxes from moves of the centre (in sizes of the prior) and logarithms of the scale."""
    center, size = center_form(priors, extra)
    scale = deltas[..., 2:] if limit is None else deltas[..., 2:].clamp_max(limit)
    new_center, new_size = center + deltas[..., :2] * size, scale.exp() * size
    return torch.cat([new_center - new_size / 2, new_center + new_size / 2 - extra], -1)


_CODES = ("encode_center_size", "decode_center_size")


def _known_code(op: Any, block: Any) -> str | None:
    code, variance = op.attrs["code_type"], op.attrs["variance"]
    if code not in _CODES:
        return f"code_type is {code!r}, but must be {' or '.join(map(repr, _CODES))}."
    if len(variance) not in (0, 4):
        return f"variance has {len(variance)} numbers, but must have 4."
    if len(variance) and op.input("PriorBoxVar"):
        return "only one of PriorBoxVar and variance may be given."
    return None


@op(
    "box_coder",
    infer=checked(_known_code),
    inputs="PriorBox PriorBoxVar? TargetBox",
    outputs="OutputBox",
    grad=None,
)
def box_coder(
    prior: Tensor,
    prior_var: Tensor | None,
    target: Tensor,
    *,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    axis: int = 0,
    variance: list[float] = [],
) -> Tensor:
    """Write target boxes relative to priors, or read such codes back."""
    extra = 0.0 if box_normalized else 1.0
    if prior_var is not None:
        scale = prior_var
    elif len(variance):
        scale = torch.tensor(variance, dtype=target.dtype, device=target.device)
    else:
        scale = torch.ones(4, dtype=target.dtype, device=target.device)
    if code_type == "encode_center_size":
        center, size = center_form(prior, extra)
        middle = (target[:, None, :2] + target[:, None, 2:]) / 2
        _, own_size = center_form(target[:, None], extra)
        code = torch.cat([(middle - center) / size, (own_size / size).abs().log()], -1)
        return code / scale
    if axis == 1:
        prior = prior[:, None]
        scale = scale[:, None] if scale.dim() == 2 else scale
    return decode_boxes(target * scale, prior, extra, None)


def clip_boxes(boxes: Tensor, size: Tensor) -> Tensor:
    """Move corners into an image of size (height, width)."""
    high = torch.stack([size[1], size[0], size[1], size[0]]) - 1
    return torch.minimum(boxes.clamp_min(0), high.clamp_min(0))


@op("box_clip", inputs="Input ImInfo", outputs="Output", grad=None)
def box_clip(boxes: Tensor, info: Tensor, *, lod: Lods) -> Tensor:
    """Move the corners of boxes into their image, as large as it was before scaling."""
    if boxes.is_meta:
        return torch.empty_like(boxes)
    lengths = lengths_of(lod_of(lod, "Input", "box_clip")[-1])
    sizes = (info[:, :2] / info[:, 2:3]).round()
    shape = boxes.shape
    parts = [
        clip_boxes(part.reshape(-1, 4), size)
        for part, size in zip(boxes.split(lengths), sizes, strict=True)
    ]
    return torch.cat(parts).reshape(shape)


@op("polygon_box_transform", inputs="Input", outputs="Output", grad=None)
def polygon_box_transform(x: Tensor) -> Tensor:
    """Turn distances from the place on a map of a quarter of the size into coordinates."""
    height, width = x.shape[2:]
    if x.shape[1] % 2:
        raise ValueError(
            f"polygon_box_transform got {x.shape[1]} channels: they are pairs of x and y, so their "
            "number must be even."
        )
    columns = torch.arange(width, dtype=x.dtype, device=x.device).expand(height, width)
    rows = torch.arange(height, dtype=x.dtype, device=x.device)[:, None].expand(height, width)
    flat = x.reshape(-1, height, width)
    base = torch.stack([columns, rows]).repeat(-(-flat.shape[0] // 2), 1, 1)[: flat.shape[0]]
    return (base * 4 - flat).reshape(x.shape)


@op(
    "box_decoder_and_assign",
    inputs="PriorBox PriorBoxVar TargetBox BoxScore",
    outputs="DecodeBox OutputAssignBox",
    grad=None,
)
def box_decoder_and_assign(
    prior: Tensor, prior_var: Tensor, target: Tensor, score: Tensor, *, box_clip: float = 4.135
) -> tuple[Tensor, Tensor]:
    """Decode a box per class, and choose that of the best class other than the background."""
    count, classes = score.shape
    deltas = target.reshape(count, classes, 4) * prior_var.reshape(-1)[:4]
    boxes = decode_boxes(deltas, prior[:, None], 1.0, box_clip)
    if classes == 1:
        return boxes.reshape(count, 4), prior.clone()
    value, best = score[:, 1:].max(1)
    chosen = boxes.gather(1, (best + 1)[:, None, None].expand(count, 1, 4)).squeeze(1)
    return boxes.reshape(count, -1), torch.where(value[:, None] > -1, chosen, prior)
