"""Ops of text matching: a matrix of scores per pair of texts, and convolution and pooling of such
matrices, which all have sizes of their own.

A batch of matrices is a column of numbers: one sequence per pair, channel by channel, row by row.
The sizes come from the sequences that the matrices were made of (ROW and COLUMN).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import input_var, known, refuse, set_output
from fleetx.static.shapes.lod import Lods, WithLod, lengths_of, lod_of, offsets_of


def _column(parts: list[Tensor], like: Tensor) -> WithLod:
    """Return the parts as one column, a sequence each."""
    flat = [part.reshape(-1, 1) for part in parts]
    out = torch.cat(flat) if flat else like.new_zeros((0, 1))
    return WithLod(out, [offsets_of(len(part) for part in flat)])


def _matrices(x: Tensor, channels: int, lod: Lods, op_type: str) -> list[Tensor]:
    """Return the matrices of a batch, [channels, rows, columns] each."""
    sizes = lengths_of(lod_of(lod, "X", op_type)[0])
    rows, columns = (lengths_of(lod_of(lod, slot, op_type)[0]) for slot in ("ROW", "COLUMN"))
    wanted = [channels * r * c for r, c in zip(rows, columns, strict=False)]
    if not len(rows) == len(columns) == len(sizes) or sizes != wanted:
        raise ValueError(
            f"{op_type} got sequences of {sizes} numbers, but {channels} channels of {rows} rows "
            f"and {columns} columns."
        )
    parts = x.reshape(-1).split(sizes)
    shapes = zip(parts, rows, columns, strict=True)
    return [part.reshape(channels, r, c) for part, r, c in shapes]


@known("X", "Y", "W")
def _infer_match(op: Any, block: Any, x: Any, y: Any, w: Any) -> None:
    if len(x.shape) != 2 or len(y.shape) != 2:
        raise refuse(op, block, "both texts must have 2 dimensions.")
    wanted = (x.shape[1], op.attr("dim_t"), y.shape[1])
    if w.shape != wanted:
        raise refuse(op, block, f"W must have shape {wanted}.")
    set_output(op, block, "Out", (-1, 1), x.dtype, 1)
    set_output(op, block, "Tmp", (-1, 1), x.dtype)


@op("match_matrix_tensor", inputs="X Y W", outputs="Out Tmp", infer=_infer_match, lod="none")
def match_matrix_tensor(
    x: Tensor, y: Tensor, w: Tensor, *, dim_t: int = 1, lod: Lods
) -> tuple[WithLod, Tensor]:
    """Return x W y of each row of x with each row of y, per pair of texts and channel."""
    lefts, rights = (lengths_of(lod_of(lod, s, "match_matrix_tensor")[0]) for s in ("X", "Y"))
    if len(lefts) != len(rights):
        raise ValueError(f"match_matrix_tensor got {len(lefts)} texts and {len(rights)} others.")
    seen = torch.einsum("nh,htk->ntk", x, w)
    pairs = zip(seen.split(lefts), y.split(rights), strict=True)
    scores = [torch.einsum("ntk,mk->tnm", left, right) for left, right in pairs]
    return _column(scores, x), seen.reshape(-1, 1)


@known("X", "W")
def _infer_conv(op: Any, block: Any, x: Any, w: Any) -> None:
    points = op.attr("InputChannel") * op.attr("KernelH") * op.attr("KernelW")
    if w.shape != (op.attr("OutputChannel"), points):
        raise refuse(op, block, f"W must have shape {(op.attr('OutputChannel'), points)}.")
    set_output(op, block, "Out", (-1, 1), x.dtype, 1)
    set_output(op, block, "Col", (-1, 1), x.dtype, 1)


def _patches(image: Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> Tensor:
    """Return what a centred kernel sees at every place, [channels * kernel, places]."""
    pads: list[int] = []
    for length, points, step in zip(image.shape[1:], kernel, stride, strict=True):
        reach = (length - 1) // step * step + points
        # `pad` takes the last dimension first, and crops where a number is negative.
        pads = [points // 2, reach - length - points // 2, *pads]
    return F.unfold(F.pad(image, pads)[None], kernel, stride=stride)[0]


@op(
    "var_conv_2d",
    inputs="X ROW! COLUMN! W",
    outputs="Out Col",
    attrs={"OutputChannel": 1},
    infer=_infer_conv,
    lod="none",
)
def var_conv_2d(
    x: Tensor,
    row: Tensor,
    column: Tensor,
    w: Tensor,
    *,
    InputChannel: int = 1,
    StrideH: int = 1,
    StrideW: int = 1,
    KernelH: int = 1,
    KernelW: int = 1,
    lod: Lods,
) -> tuple[WithLod, WithLod]:
    """Convolve matrices of different sizes, zeros around them; return also what a kernel sees."""
    seen = []
    for image in _matrices(x, InputChannel, lod, "var_conv_2d"):
        empty = image.new_zeros((w.shape[1], 0))
        kernel, stride = (KernelH, KernelW), (StrideH, StrideW)
        seen.append(_patches(image, kernel, stride) if image.numel() else empty)
    return _column([w @ part for part in seen], x), _column(seen, x)


def _infer_topk(op: Any, block: Any) -> None:
    x = input_var(op, block, "X")
    topks = op.attr("topks")
    if not topks or list(topks) != sorted(topks) or topks[0] < 1:
        raise refuse(op, block, f"topks must be positive and in ascending order, not {topks}.")
    if x is not None:
        set_output(op, block, "Out", (-1, op.attr("channel_num") * len(topks)), x.dtype, 1)
        set_output(op, block, "pos", (-1,), VarType.INT32)


@op(
    "sequence_topk_avg_pooling",
    inputs="X ROW! COLUMN!",
    outputs="Out pos",
    infer=_infer_topk,
    lod="none",
)
def sequence_topk_avg_pooling(
    x: Tensor,
    row: Tensor,
    column: Tensor,
    *,
    topks: list[int] = [],
    channel_num: int = 1,
    lod: Lods,
) -> tuple[WithLod, Tensor]:
    """Average the largest numbers of each row of each matrix, as many as each of `topks` says.

    A row that is too short is padded with zeros. Also return the indices of the largest numbers,
    -1 for missing ones.
    """
    most = topks[-1]
    index = torch.tensor(topks, device=x.device)
    pooled, places = [], []
    for matrix in _matrices(x, channel_num, lod, "sequence_topk_avg_pooling"):
        values, place = matrix.sort(dim=-1, descending=True, stable=True)
        lacking = max(most - matrix.shape[2], 0)
        sums = F.pad(values[..., :most], (0, lacking)).cumsum(-1)
        pooled.append((sums[..., index - 1] / index).movedim(0, 1).flatten(1))
        places.append(F.pad(place[..., :most], (0, lacking), value=-1).movedim(0, 1).flatten())
    levels = lod_of(lod, "ROW", "sequence_topk_avg_pooling")
    out = torch.cat(pooled) if pooled else x.new_zeros((0, channel_num * len(topks)))
    return WithLod(out, [levels[0]]), torch.cat(places).to(torch.int32)
