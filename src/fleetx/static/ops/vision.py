"""Ops that rearrange and sample images: shuffles, blocks, grids, patches, shifts, crops."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from fleetx.static.graph.op_registry import Long, op
from fleetx.static.ops.windows import in_either_layout
from fleetx.static.shapes.infer_rules import checked, shapes
from fleetx.static.shapes.lod import Lods, lod_of, positions

op("pixel_shuffle")(
    lambda x, *, upscale_factor=1, data_format="NCHW": in_either_layout(
        F.pixel_shuffle, x, data_format, upscale_factor
    )
)
op("pixel_unshuffle")(
    lambda x, *, downscale_factor=1, data_format="NCHW": in_either_layout(
        F.pixel_unshuffle, x, data_format, downscale_factor
    )
)


@op("space_to_depth")
def _space_to_depth(x: torch.Tensor, *, blocksize: Long = 2) -> torch.Tensor:
    """Turn blocks of pixels into channels, in the order Fluid's op has always had.

    It spreads channels over blocks of pixels and then only renames the shape, so the number of
    channels must be divisible by the square of the block size.
    """
    batch, channels, height, width = x.shape
    b = blocksize
    if channels % (b * b) or height % b or width % b:
        raise ValueError(
            f"channels must be divisible by blocksize squared, height and width by blocksize {b}, "
            f"but the shape is {tuple(x.shape)}."
        )
    blocks = x.reshape(batch, b, b, channels // (b * b), height, width).permute(0, 3, 4, 1, 5, 2)
    return blocks.reshape(batch, channels * b * b, height // b, width // b)


def _shuffle_channel(x: torch.Tensor, group: int) -> torch.Tensor:
    batch, channels, height, width = x.shape
    groups = x.reshape(batch, group, channels // group, height, width)
    return groups.transpose(1, 2).reshape(x.shape)


op("shuffle_channel")(lambda x, *, group=1: _shuffle_channel(x, group))
op("channel_shuffle")(
    lambda x, *, groups=1, data_format="NCHW": in_either_layout(
        _shuffle_channel, x, data_format, groups
    )
)


def _less_than_half(op: Any, block: Any) -> str | None:
    ratio = op.attrs["shift_ratio"]
    wrong = not 0 < ratio < 0.5
    return f"shift_ratio is {ratio}, but must be between 0 and 0.5." if wrong else None


def _shift_in_time(x: torch.Tensor, seg_num: int, shift_ratio: float) -> torch.Tensor:
    """Shift some channels one frame ahead and some one frame back; frames are rows of the batch."""
    frames = x.reshape(-1, seg_num, *x.shape[1:])
    first, second = int(x.shape[1] * shift_ratio), int(x.shape[1] * 2 * shift_ratio)
    padded = F.pad(frames, [0, 0, 0, 0, 0, 0, 1, 1])
    parts = [
        padded[:, :-2, :first],
        padded[:, 2:, first:second],
        frames[:, :, second:],
    ]
    return torch.cat(parts, 2).reshape(x.shape)


op("temporal_shift", infer=checked(_less_than_half))(
    lambda x, *, seg_num=1, shift_ratio=0.25, data_format="NCHW": in_either_layout(
        _shift_in_time, x, data_format, seg_num, shift_ratio
    )
)


@op("affine_channel", inputs="X Scale Bias")
def _affine_channel(
    x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor, *, data_layout: str = "AnyLayout"
) -> torch.Tensor:
    shape = [-1] if data_layout == "NHWC" else [-1] + [1] * (x.dim() - 2)
    return x * scale.reshape(shape) + bias.reshape(shape)


def _grid(op: Any, theta: Any) -> dict[str, Any]:
    size = op.attr("output_shape")
    if op.input("OutputShape"):
        size = [-1] * (5 if theta.shape[1] == 3 else 4)
    return {"Output": ((theta.shape[0], *size[2:], len(size) - 2), theta.dtype)}


@op(
    "affine_grid",
    inputs="Theta OutputShape?!",
    outputs="Output",
    attrs={"use_cudnn": True},
    infer=shapes("Theta", _grid),
)
def _affine_grid(
    theta: torch.Tensor,
    shape_tensor: torch.Tensor | None,
    *,
    align_corners: bool = True,
    output_shape: list[int] = [],
) -> torch.Tensor:
    size = output_shape if shape_tensor is None else shape_tensor.tolist()
    return F.affine_grid(theta, [theta.shape[0], *size[1:]], align_corners=align_corners)


@op("grid_sampler", inputs="X Grid", outputs="Output", attrs={"use_cudnn": True})
def _grid_sampler(
    x: torch.Tensor,
    grid: torch.Tensor,
    *,
    align_corners: bool = True,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> torch.Tensor:
    return F.grid_sample(x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)


@op("unfold", outputs="Y")
def _unfold(
    x: torch.Tensor,
    *,
    kernel_sizes: list[int] = [],
    strides: list[int] = [],
    paddings: list[int] = [],
    dilations: list[int] = [],
) -> torch.Tensor:
    """Return all patches of an image as columns; paddings are top, left, bottom, right."""
    top, left, bottom, right = paddings
    x = F.pad(x, [left, right, top, bottom])
    sizes, holes, steps = (tuple(v) for v in (kernel_sizes, dilations, strides))
    return F.unfold(x, sizes, holes, 0, steps)


@op("fold", outputs="Y")
def _fold(
    x: torch.Tensor,
    *,
    output_sizes: list[int] = [],
    kernel_sizes: list[int] = [],
    strides: list[int] = [],
    paddings: list[int] = [],
    dilations: list[int] = [],
) -> torch.Tensor:
    """Add up patches where they overlap: the reverse of `unfold`."""
    top, left, bottom, right = paddings
    height, width = output_sizes
    size = (height + top + bottom, width + left + right)
    sizes, holes, steps = (tuple(v) for v in (kernel_sizes, dilations, strides))
    out = F.fold(x, size, sizes, holes, 0, steps)
    return out[:, :, top : top + height, left : left + width]


@op("add_position_encoding")
def _add_position_encoding(
    x: torch.Tensor, *, alpha: float = 1.0, beta: float = 1.0, lod: Lods
) -> torch.Tensor:
    """Add sines of the position in the first half of the features, cosines in the second.

    Positions count from the start of the matrix, or of the sequence if X has two dimensions.
    """
    half = x.shape[-1] // 2
    if x.dim() == 2 and not x.is_meta:
        offsets = lod_of(lod, "X", "add_position_encoding")[0]
        position = positions(offsets, x.device).to(x.dtype).unsqueeze(1)
    else:
        position = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device).unsqueeze(1)
    exponent = torch.ones(1, dtype=x.dtype, device=x.device)
    if half > 1:
        exponent = torch.arange(half, dtype=x.dtype, device=x.device) / (half - 1)
    angle = position / torch.pow(10000.0, exponent)
    return x * alpha + torch.cat([angle.sin(), angle.cos()], 1) * beta
