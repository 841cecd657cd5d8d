"""Convolutions that read their inputs at learned places (Deformable ConvNets v1 and v2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import input_var, set_output


def _infer(op: Any, block: Any) -> None:
    x, weight = input_var(op, block, "Input"), input_var(op, block, "Filter")
    size = []
    for i in range(2):
        length, kernel = x.shape[2 + i], weight.shape[2 + i]
        reach = op.attr("dilations")[i] * (kernel - 1) + 1
        out = (length + 2 * op.attr("paddings")[i] - reach) // op.attr("strides")[i] + 1
        size.append(out if length >= 0 else -1)
    set_output(op, block, "Output", (x.shape[0], weight.shape[0], *size), x.dtype)


def sample_at(x: Tensor, ys: Tensor, xs: Tensor) -> Tensor:
    """Return x [..., height, width] at places [..., n], linearly interpolated, zero outside."""
    height, width = x.shape[-2:]
    flat = x.flatten(-2)
    low_y, low_x = ys.detach().floor(), xs.detach().floor()
    near = (ys.detach() > -1) & (xs.detach() > -1) & (ys.detach() < height) & (xs.detach() < width)
    total = None
    for row in (low_y, low_y + 1):
        for column in (low_x, low_x + 1):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width) & near
            place = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long()
            share = (1 - (ys - row).abs()) * (1 - (xs - column).abs())
            share = torch.where(inside, share, 0.0)
            index = place.unsqueeze(-2).expand(*flat.shape[:-1], place.shape[-1])
            part = flat.gather(-1, index) * share.unsqueeze(-2)
            total = part if total is None else total + part
    assert total is not None
    return total


def _deformable_conv(
    x: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    *,
    strides: list[int] = [1, 1],
    paddings: list[int] = [0, 0],
    dilations: list[int] = [1, 1],
    groups: int = 1,
    deformable_groups: int = 1,
) -> Tensor:
    """Convolve with shifted points of the kernel, weighted by a mask if there is one."""
    batch, channels = x.shape[:2]
    filters, _, rows, columns = weight.shape
    height, width = offset.shape[2:]
    points = rows * columns
    shift = offset.reshape(batch, deformable_groups, points, 2, height, width)
    base = []
    for i, (count, kernel) in enumerate(((height, rows), (width, columns))):
        start = torch.arange(count, dtype=x.dtype, device=x.device) * strides[i] - paddings[i]
        step = torch.arange(kernel, dtype=x.dtype, device=x.device) * dilations[i]
        base.append(step[:, None] + start)
    at_y = base[0][:, None, :, None].expand(rows, columns, height, width)
    at_x = base[1][None, :, None, :].expand(rows, columns, height, width)
    ys = shift[:, :, :, 0] + at_y.reshape(points, height, width)
    xs = shift[:, :, :, 1] + at_x.reshape(points, height, width)
    parts = x.reshape(batch, deformable_groups, channels // deformable_groups, *x.shape[2:])
    seen = sample_at(parts, ys.flatten(2), xs.flatten(2))
    if mask is not None:
        seen = seen * mask.reshape(batch, deformable_groups, 1, -1)
    seen = seen.reshape(batch, groups, channels // groups * points, height * width)
    kernels = weight.reshape(groups, filters // groups, -1)
    return torch.matmul(kernels, seen).reshape(batch, filters, height, width)


_OPTIONS: dict[str, Any] = {"outputs": "Output", "infer": _infer}
op("deformable_conv", inputs="Input Offset Mask Filter", attrs={"im2col_step": 64}, **_OPTIONS)(
    _deformable_conv
)


@op(
    "deformable_conv_v1",
    inputs="Input Offset Filter",
    attrs=_deformable_conv.__kwdefaults__,
    **_OPTIONS,
)
def _without_mask(
    x: Tensor, offset: Tensor, weight: Tensor, *, im2col_step: int = 64, **attrs: Any
) -> Tensor:
    return _deformable_conv(x, offset, None, weight, **attrs)
