"""Ops on images of different sizes, each a sequence of a batch: rows of channels x height x width.

The heights and widths of the images are the lengths of the sequences of two other inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from fleetx.static.graph.op_registry import Attr, op
from fleetx.static.shapes.lod import LoD, WithLod, lengths_of, lod_of, offsets_of
from fleetx.static.shapes.lod_infer import input_var, set_output

Lods = dict[str, list[LoD | None]]


def _images(x: torch.Tensor, channels: int, lod: Lods, type: str) -> Iterator[torch.Tensor]:
    """Yield the images [channels, height, width]."""
    heights = lengths_of(lod_of(lod, "ROW", type)[-1])
    widths = lengths_of(lod_of(lod, "COLUMN", type)[-1])
    sizes = lengths_of(lod_of(lod, "X", type)[-1])
    wanted = [channels * h * w for h, w in zip(heights, widths, strict=True)]
    if sizes != wanted:
        raise ValueError(
            f"{type} takes sequences of channels x rows x columns values, here {wanted}, "
            f"but X has {sizes}."
        )
    for image, h, w in zip(x.reshape(-1).split(sizes), heights, widths, strict=True):
        yield image.view(channels, h, w)


def _windows(
    image: torch.Tensor, kernel: tuple[int, int], stride: tuple[int, int]
) -> tuple[torch.Tensor, int]:
    """Return the windows around every stride-th pixel as columns, and how many there are."""
    sizes = image.shape[1:]
    if 0 in sizes:
        return image.new_zeros(image.shape[0] * kernel[0] * kernel[1], 0), 0
    counts = [(size - 1) // step + 1 for size, step in zip(sizes, stride, strict=True)]
    padding: list[int] = []
    for size, k, step, count in zip(sizes, kernel, stride, counts, strict=True):
        padding = [k // 2, (count - 1) * step + k - k // 2 - size, *padding]
    return F.unfold(F.pad(image, padding)[None], kernel, stride=stride)[0], counts[0] * counts[1]


def _infer_var_conv(op: Any, block: Any) -> None:
    x = input_var(op, block, "X")
    set_output(op, block, "Out", (-1, 1), x.dtype, 1)
    set_output(op, block, "Col", (-1, 1), x.dtype, 1)


@op(
    "var_conv_2d",
    inputs="X ROW COLUMN W",
    outputs="Out Col",
    attrs={
        "InputChannel": Attr("INT", 1),
        "OutputChannel": Attr("INT", 1),
        "StrideH": Attr("INT", 1),
        "StrideW": Attr("INT", 1),
        "KernelH": Attr("INT", 1),
        "KernelW": Attr("INT", 1),
    },
    no_grad="ROW COLUMN",
    infer=_infer_var_conv,
    lod="none",
)
def var_conv_2d(
    x: torch.Tensor,
    row: torch.Tensor,
    column: torch.Tensor,
    w: torch.Tensor,
    *,
    lod: Lods,
    **attrs: int,
) -> Any:
    """Convolve images of different sizes with W [channels out, channels in x height x width]."""
    kernel = attrs["KernelH"], attrs["KernelW"]
    stride = attrs["StrideH"], attrs["StrideW"]
    channels = attrs["InputChannel"]
    images = _images(x, channels, lod, "var_conv_2d")
    columns = [_windows(image, kernel, stride)[0] for image in images]
    outs = [(w @ each).reshape(-1, 1) for each in columns]
    flat = [each.reshape(-1, 1) for each in columns]
    return tuple(
        WithLod(torch.cat(parts), [offsets_of(len(part) for part in parts)])
        for parts in (outs, flat)
    )


def _infer_topk_average(op: Any, block: Any) -> None:
    x, row = input_var(op, block, "X"), input_var(op, block, "ROW")
    width = len(op.attr("topks")) * op.attr("channel_num")
    set_output(op, block, "Out", (-1, width), x.dtype, row.lod_level)


@op(
    "sequence_topk_avg_pooling",
    inputs="X ROW COLUMN",
    outputs="Out pos?",
    attrs={"topks": Attr("INTS", []), "channel_num": Attr("INT", 1)},
    no_grad="ROW COLUMN",
    infer=_infer_topk_average,
    lod="none",
)
def sequence_topk_avg_pooling(
    x: torch.Tensor,
    row: torch.Tensor,
    column: torch.Tensor,
    *,
    topks: list[int],
    channel_num: int,
    lod: Lods,
) -> Any:
    """Average the k largest values of every row of an image, for several k and every channel.

    A row of fewer values counts as padded with zeros.
    """
    outs, places = [], []
    for image in _images(x, channel_num, lod, "sequence_topk_avg_pooling"):
        _, height, width = image.shape
        values, order = torch.sort(image, dim=2, descending=True, stable=True)
        most = max(topks)
        values = F.pad(values, (0, max(most - width, 0)))
        sums = values.cumsum(2)
        picked = [sums[:, :, k - 1] / k for k in topks]
        # [k, channel, row] to [row, channel x k]
        outs.append(torch.stack(picked).permute(2, 1, 0).reshape(height, -1))
        order = F.pad(order, (0, max(most - width, 0)), value=-1)[:, :, :most]
        places.append(order.permute(1, 0, 2).reshape(-1))
    offsets = lod_of(lod, "ROW", "sequence_topk_avg_pooling")
    return WithLod(torch.cat(outs), offsets), torch.cat(places).int()
