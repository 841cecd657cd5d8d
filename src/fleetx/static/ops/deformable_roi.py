"""Pooling of regions whose bins are moved by learned offsets (Deformable ConvNets)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import op
from fleetx.static.ops.roi import images_of_boxes
from fleetx.static.shapes.infer_rules import input_var, refuse, set_output
from fleetx.static.shapes.lod import Lods


def _infer(op: Any, block: Any) -> None:
    x, rois, trans = (input_var(op, block, slot) for slot in ("Input", "ROIs", "Trans"))
    if x is None or rois is None:
        return
    channels = op.attr("output_dim")
    rows, columns = op.attr("group_size")
    if len(x.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != 4:
        raise refuse(op, block, "Input must be [N, C, H, W] and boxes [boxes, 4].")
    if x.shape[1] >= 0 and x.shape[1] < channels * rows * columns:
        need = f"{channels} channels in {rows} x {columns} groups"
        raise refuse(op, block, f"{need} need {channels * rows * columns} input channels.")
    if not op.attr("no_trans") and trans is not None and channels < trans.shape[1] // 2:
        raise refuse(op, block, f"{channels} channels are fewer than the classes of Trans.")
    shape = (rois.shape[0], channels, op.attr("pooled_height"), op.attr("pooled_width"))
    set_output(op, block, "Output", shape, x.dtype)
    set_output(op, block, "TopCount", shape, x.dtype)


def _away_from_zero(x: Tensor) -> Tensor:
    """Round halves away from zero, as C does."""
    return x.sign() * (x.abs() + 0.5).floor()


def _part(bins: int, parts: int, like: Tensor) -> Tensor:
    """Return the part that each bin belongs to."""
    share = torch.arange(bins, dtype=like.dtype, device=like.device) / bins
    return (share * parts).floor().long()


def _read(x: Tensor, channel: Tensor, image: Tensor, at_y: Tensor, at_x: Tensor) -> Tensor:
    """Return channels of images at places inside of them, linearly interpolated."""
    total = torch.zeros((), dtype=x.dtype, device=x.device)
    low_y, low_x = at_y.detach().floor(), at_x.detach().floor()
    high_y, high_x = at_y.detach().ceil(), at_x.detach().ceil()
    part_y, part_x = at_y - low_y, at_x - low_x
    for row, share_y in ((low_y, 1 - part_y), (high_y, part_y)):
        for column, share_x in ((low_x, 1 - part_x), (high_x, part_x)):
            total = total + x[image, channel, row.long(), column.long()] * share_y * share_x
    return total


@op(
    "deformable_psroi_pooling",
    inputs="Input ROIs! Trans",
    outputs="TopCount Output",
    infer=_infer,
    lod="none",
)
def deformable_psroi_pooling(
    x: Tensor,
    rois: Tensor,
    trans: Tensor,
    *,
    no_trans: bool = False,
    spatial_scale: float = 1.0,
    output_dim: int = 1,
    group_size: list[int] = [1, 1],
    pooled_height: int = 1,
    pooled_width: int = 1,
    part_size: list[int] = [1, 1],
    sample_per_part: int = 1,
    trans_std: float = 0.1,
    lod: Lods,
) -> tuple[Tensor, Tensor]:
    """Average samples of each bin in channels of the bin's own; also return their number.

    Tensors below are [boxes, channels, rows of bins, columns of bins], some with 1 in places.
    """
    images = images_of_boxes(rois, None, None, lod, "deformable_psroi_pooling")
    image = torch.tensor(images, dtype=torch.int64, device=x.device)[:, None, None, None]
    bins = pooled_height, pooled_width
    corners = _away_from_zero(rois)
    start = corners[:, :2] * spatial_scale - 0.5
    size = ((corners[:, 2:] + 1.0) * spatial_scale - 0.5 - start).clamp_min(0.1)
    groups = [
        (torch.arange(count, device=x.device) * group // count).clamp(0, group - 1)
        for count, group in zip(bins, group_size, strict=True)
    ]
    channel = torch.arange(output_dim, device=x.device)[:, None, None]
    channel = (channel * group_size[0] + groups[0][:, None]) * group_size[1] + groups[1]
    starts, steps, lengths = [], [], x.shape[2:]
    for axis in (0, 1):  # rows, then columns; boxes and offsets have x before y
        side = size[:, 1 - axis, None, None, None]
        bin_size = side / bins[axis]
        number = torch.arange(bins[axis], dtype=x.dtype, device=x.device)
        number = number[:, None] if axis == 0 else number
        at = number * bin_size + start[:, 1 - axis, None, None, None]
        if not no_trans:
            classes = trans.shape[1] // 2
            parts = (_part(n, p, x) for n, p in zip(bins, part_size, strict=True))
            row, column = parts
            moved = trans.reshape(len(rois), classes, 2, *trans.shape[2:])[:, :, 1 - axis]
            moved = moved[:, :, row[:, None], column] * trans_std
            owner = torch.arange(output_dim, device=x.device) // (output_dim // classes)
            at = at + moved[:, owner] * side
        starts.append(at)
        steps.append(bin_size / sample_per_part)
    shape = (len(rois), output_dim, *bins)
    total, count = x.new_zeros(shape), x.new_zeros(shape)
    for sample in range(sample_per_part**2):
        turn = divmod(sample, sample_per_part)
        places = [a + n * step for a, n, step in zip(starts, turn, steps, strict=True)]
        inside = torch.ones((), dtype=torch.bool, device=x.device)
        for place, length in zip(places, lengths, strict=True):
            inside = inside & (place >= -0.5) & (place <= length - 0.5)
        at_y, at_x = (p.clamp(0.0, n - 1.0) for p, n in zip(places, lengths, strict=True))
        total = total + torch.where(inside, _read(x, channel, image, at_y, at_x), 0.0)
        count = count + inside.to(x.dtype)
    return count, total / count.clamp_min(1.0)
