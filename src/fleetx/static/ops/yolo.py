"""YOLOv3: boxes from a feature map of one scale, and the loss of such a map.

The map is [batch, anchors * (5 + classes), height, width]: for each anchor the centre within its
cell, the scale of the anchor, the objectness, and the classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fleetx.static.graph.op_registry import detached_op, op


def _predictions(
    x: Tensor, anchors: Tensor, classes: int, downsample: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the map by anchor, and boxes as (centre, size) in shares of the image.

    Both are [batch, anchors, height, width, ...].
    """
    batch, _, height, width = x.shape
    parts = x.reshape(batch, -1, 5 + classes, height, width).permute(0, 1, 3, 4, 2)
    cells = torch.stack(
        [
            torch.arange(width, dtype=x.dtype, device=x.device).expand(height, width),
            torch.arange(height, dtype=x.dtype, device=x.device)[:, None].expand(height, width),
        ],
        -1,
    )
    # Paddle divides both axes by the height: maps are meant to be square.
    center = (cells + parts[..., :2].sigmoid() * scale - 0.5 * (scale - 1)) / height
    size = parts[..., 2:4].exp() * anchors[:, None, None, :] / (downsample * height)
    return parts, torch.cat([center, size], -1)


def _as_pairs(anchors: list[int], like: Tensor) -> Tensor:
    return torch.tensor(anchors, dtype=like.dtype, device=like.device).reshape(-1, 2)


@detached_op("yolo_box", inputs="X ImgSize", outputs="Boxes Scores")
def yolo_box(
    x: Tensor,
    sizes: Tensor,
    *,
    class_num: int = 0,
    anchors: list[int] = [],
    downsample_ratio: int = 32,
    conf_thresh: float = 0.01,
    clip_bbox: bool = True,
    scale_x_y: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return corners in pixels and scores of all boxes, zero below the confidence."""
    parts, boxes = _predictions(x, _as_pairs(anchors, x), class_num, downsample_ratio, scale_x_y)
    image = sizes.flip(-1).to(x.dtype)[:, None, None, None, :]
    center, size = boxes[..., :2] * image, boxes[..., 2:] * image
    low, high = center - size / 2, center + size / 2
    if clip_bbox:
        low, high = low.clamp_min(0), torch.minimum(high, image - 1)
    confidence = parts[..., 4:5].sigmoid()
    sure = confidence >= conf_thresh
    corners = torch.where(sure, torch.cat([low, high], -1), 0.0)
    scores = torch.where(sure, confidence * parts[..., 5:].sigmoid(), 0.0)
    return corners.flatten(1, 3), scores.flatten(1, 3)


def _overlap(first: Tensor, second: Tensor) -> Tensor:
    """Return intersection over union of boxes (centre, size)."""
    low = torch.maximum(first[..., :2] - first[..., 2:] / 2, second[..., :2] - second[..., 2:] / 2)
    high = torch.minimum(first[..., :2] + first[..., 2:] / 2, second[..., :2] + second[..., 2:] / 2)
    common = (high - low).clamp_min(0).prod(-1)
    return common / (first[..., 2:].prod(-1) + second[..., 2:].prod(-1) - common)


class _Distance(torch.autograd.Function):
    """|x - y| whose gradient is -1, not 0, where both are equal."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x > y)
        return (x - y).abs()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        (greater,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return torch.where(greater, grad, -grad), None


def _cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, target, reduction="none")


@op(
    "yolov3_loss",
    inputs="X GTBox! GTLabel! GTScore?!",
    outputs="Loss ObjectnessMask GTMatchMask",
    lod="none",
)
def yolov3_loss(
    x: Tensor,
    truth: Tensor,
    label: Tensor,
    score: Tensor | None,
    *,
    class_num: int = 0,
    anchors: list[int] = [],
    anchor_mask: list[int] = [],
    downsample_ratio: int = 32,
    ignore_thresh: float = 0.7,
    use_label_smooth: bool = True,
    scale_x_y: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss per image: location, objectness and class of matched cells.

    A true box belongs to the anchor whose shape is most like its own, in the cell of its centre.
    Other cells should predict no object, unless their box overlaps a true one well.
    """
    pairs = _as_pairs(anchors, x)
    height, width = x.shape[2:]
    own = pairs[anchor_mask]
    parts, boxes = _predictions(x, own, class_num, downsample_ratio, scale_x_y)
    batch, count = truth.shape[:2]
    weight = torch.ones_like(truth[..., 0]) if score is None else score.reshape(batch, count)
    size = float(downsample_ratio * height)
    with torch.no_grad():
        valid = (truth[..., 2:] >= 1e-6).all(-1)
        seen = _overlap(boxes[..., None, :], truth[:, None, None, None])
        best = torch.where(valid[:, None, None, None], seen, 0.0).amax(-1)
        mask = torch.where(best > ignore_thresh, -1.0, 0.0).to(x.dtype)
        shapes = torch.cat([torch.zeros_like(pairs), pairs / size], -1)
        centred = torch.cat([torch.zeros_like(truth[..., :2]), truth[..., 2:]], -1)
        nearest = _overlap(shapes, centred[:, :, None]).argmax(-1)
        place = torch.full((len(pairs),), -1, dtype=torch.int32, device=x.device)
        # Of equal entries of the mask the first counts.
        for position in reversed(range(len(anchor_mask))):
            place[anchor_mask[position]] = position
        match = torch.where(valid, place[nearest], -1)
        matched = match >= 0
        column = (truth[..., 0] * width).long().clamp(0, width - 1)
        row = (truth[..., 1] * height).long().clamp(0, height - 1)
        image = torch.arange(batch, device=x.device)[:, None].expand(batch, count)
        which = match.clamp_min(0).long()
        last = matched.clone()
        if not x.is_meta:
            taken: dict[tuple[int, ...], int] = {}
            for i, j in matched.nonzero().tolist():
                cell_of = (i, int(which[i, j]), int(row[i, j]), int(column[i, j]))
                mask[cell_of] = weight[i, j]
                if cell_of in taken:
                    last[i, taken[cell_of]] = False
                taken[cell_of] = j
        cell = torch.stack([column, row], -1).to(x.dtype)
        shift = truth[..., :2] * height - cell
        stretch = torch.where(matched[..., None], truth[..., 2:] * size / pairs[nearest], 1.0).log()
        importance = torch.where(matched, weight, 0.0)
        smooth = min(1.0 / class_num, 1.0 / 40) if use_label_smooth else 0.0
        classes = F.one_hot(label.long().clamp(0, class_num - 1), class_num).to(x.dtype)
        classes = classes * (1 - 2 * smooth) + smooth
    found = parts[image, which, row, column]
    # All boxes of a cell count in the loss, but only the last one in Paddle's gradient.
    found = torch.where(last[..., None], found, found.detach())
    location = _cross_entropy(found[..., :2], shift) + _Distance.apply(found[..., 2:4], stretch)
    area = 2.0 - truth[..., 2] * truth[..., 3]
    loss = (location.sum(-1) * area * importance).sum(1)
    loss = loss + (_cross_entropy(found[..., 5:], classes).sum(-1) * importance).sum(1)
    certain = parts[..., 4]
    positive = mask > 1e-5
    objectness = torch.where(positive, _cross_entropy(certain, torch.ones_like(mask)) * mask, 0.0)
    empty = (mask > -0.5) & ~positive
    objectness = objectness + torch.where(
        empty, _cross_entropy(certain, torch.zeros_like(mask)), 0.0
    )
    return loss + objectness.sum((1, 2, 3)), mask, match
