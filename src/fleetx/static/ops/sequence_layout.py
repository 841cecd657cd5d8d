"""Ops that change the layout of sequences: repeat, join, pad and unpad them, or set other offsets.

An op whose result has offsets takes `lod` even if it does not use it: only such ops are called by
the part of the engine that tracks offsets.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import rows_like, set_output, shapes
from fleetx.static.shapes.lod import (
    Lods,
    WithLod,
    as_tensor,
    lengths_of,
    lod_of,
    offsets_of,
    optional_lod,
    runs,
    segment_ids,
)


@op("sequence_expand", inputs="X Y!", infer=rows_like("X"), lod="none")
def sequence_expand(x: Any, y: Any, *, ref_level: int = -1, lod: Lods) -> Any:
    """Repeat the i-th sequence (or row) of X as often as the i-th sequence of Y is long."""
    times = lengths_of(lod_of(lod, "Y", "sequence_expand")[ref_level])
    own = optional_lod(lod, "X")
    count = len(x) if own is None else len(own[0]) - 1
    if len(times) != count:
        raise ValueError(
            f"sequence_expand repeats {count} sequences of X, "
            f"but level {ref_level} of Y has {len(times)}."
        )
    if own is None:
        return WithLod(x[as_tensor(np.repeat(np.arange(count), times), x.device)], None)
    starts = np.repeat(np.asarray(own[0][:-1]), times)
    sizes = np.repeat(np.diff(own[0]), times)
    return WithLod(x[runs(starts, sizes, x.device)], [offsets_of(sizes.tolist())])


@op(
    "sequence_expand_as",
    inputs="X Y!",
    infer=shapes("X Y", lambda op, x, y: {"Out": ((-1, *x.shape[1:]), x.dtype, y.lod_level)}),
    lod="none",
)
def sequence_expand_as(x: Any, y: Any, *, lod: Lods) -> Any:
    """Repeat the i-th row of X over all rows of the i-th sequence of Y."""
    levels = lod_of(lod, "Y", "sequence_expand_as")
    offsets = levels[0]
    if len(offsets) - 1 != len(x):
        raise ValueError(
            "sequence_expand_as needs one row of X per sequence of Y: "
            f"{len(offsets) - 1}, not {len(x)}."
        )
    return WithLod(x[segment_ids(offsets, x.device)], [list(offsets)])


@op("sequence_concat", inputs="X*", infer=rows_like("X"), lod="none")
def sequence_concat(xs: list[Any], *, lod: Lods) -> Any:
    """Join the i-th sequences of all inputs, one after the other."""
    levels = [lod_of(lod, "X", "sequence_concat", i)[-1] for i in range(len(xs))]
    if len({len(offsets) for offsets in levels}) > 1:
        raise ValueError(
            "sequence_concat joins inputs with equally many sequences, not "
            f"{[len(offsets) - 1 for offsets in levels]}."
        )
    owner = np.concatenate([np.repeat(np.arange(len(o) - 1), np.diff(o)) for o in levels])
    order = as_tensor(np.argsort(owner, kind="stable"), xs[0].device)
    joined = [sum(ends) for ends in zip(*levels, strict=True)]
    return WithLod(torch.cat(xs)[order], [joined])


@op(
    "sequence_pad",
    inputs="X PadValue!",
    outputs="Out Length",
    infer=shapes(
        "X",
        lambda op, x: {
            "Out": ((-1, op.attr("padded_length"), *x.shape[1:]), x.dtype, 0),
            "Length": ((-1,), torch.int64, 0),
        },
        rank=2,
    ),
    lod="none",
)
def sequence_pad(x: Any, pad_value: Any, *, padded_length: int = -1, lod: Lods) -> Any:
    """Return the sequences as [sequences, length, ...], padded, and their lengths."""
    offsets = lod_of(lod, "X", "sequence_pad")[-1]
    lengths = np.diff(offsets)
    longest = int(lengths.max(initial=0))
    width = longest if padded_length < 0 else padded_length
    if width < longest:
        raise ValueError(
            f"maxlen of sequence_pad is {padded_length}, but one sequence has {longest} rows."
        )
    columns = np.arange(width)
    rows = np.asarray(offsets[:-1])[:, None] + columns
    rows = np.where(columns < lengths[:, None], rows, offsets[-1])
    filler = pad_value.to(x.dtype).expand(x.shape[1:]) if pad_value.numel() == 1 else pad_value
    padded = torch.cat([x, filler.reshape(1, *x.shape[1:]).to(x.dtype)])
    return padded[as_tensor(rows, x.device)], as_tensor(lengths, x.device)


@op(
    "sequence_unpad",
    inputs="X Length!",
    infer=shapes("X", lambda op, x: {"Out": ((-1, *(x.shape[2:] or (1,))), x.dtype, 1)}, rank=2),
    lod="none",
)
def sequence_unpad(x: Any, length: Any, *, lod: Lods) -> Any:
    """Take the first `Length[i]` rows of each padded sequence."""
    lengths = length.reshape(-1).cpu().numpy()
    if len(lengths) != len(x) or (lengths > x.shape[1]).any():
        raise ValueError(
            f"sequence_unpad needs {len(x)} lengths of at most {x.shape[1]}, "
            f"but has {lengths.tolist()}."
        )
    tail = x.shape[2:] or (1,)
    rows = runs(np.arange(len(lengths)) * x.shape[1], lengths, x.device)
    return WithLod(x.reshape(-1, *tail)[rows], [offsets_of(lengths.tolist())])


@op(
    "sequence_reshape",
    infer=shapes("X", lambda op, x: {"Out": ((-1, op.attr("new_dim")), x.dtype, 1)}, rank=2),
    lod="none",
)
def sequence_reshape(x: Any, *, new_dim: int = 1, lod: Lods) -> Any:
    """Cut each sequence's numbers into rows of another width."""
    width = x.shape[1]
    counts = [end * width for end in lod_of(lod, "X", "sequence_reshape")[-1]]
    for count in counts:
        if count % new_dim:
            raise ValueError(
                f"sequence_reshape cannot cut sequences of width {width} into rows of {new_dim}: "
                "the numbers of every sequence must fill whole rows."
            )
    return WithLod(x.reshape(-1, new_dim), [[count // new_dim for count in counts]])


def _infer_lod_reset(op: Any, block: Any) -> None:
    x = block.var_recursive(op.input("X")[0])
    level = max(block.var_recursive(op.input("Y")[0]).lod_level, 1) if op.input("Y") else 1
    if op.attr("append"):
        level += x.lod_level
    if x._shape is not None:
        set_output(op, block, "Out", x.shape, x.dtype, level)


@op("lod_reset", inputs="X Y?!", infer=_infer_lod_reset, lod="none")
def lod_reset(
    x: Any, y: Any, *, target_lod: list[int] = [], append: bool = False, lod: Lods
) -> Any:
    """Give X other offsets: those of Y, the numbers in Y, or the given ones."""
    levels = optional_lod(lod, "Y")
    if levels is None:
        numbers = y.reshape(-1).tolist() if y is not None else list(target_lod)
        levels = [[int(n) for n in numbers]]
    for offsets in levels:
        if len(offsets) < 2 or offsets[0] != 0 or any(n < 0 for n in lengths_of(offsets)):
            raise ValueError(f"offsets of sequences must start at 0 and not fall, not {offsets}.")
    if levels[-1][-1] != len(x):
        raise ValueError(f"the new offsets {levels[-1]} do not end at the {len(x)} rows of X.")
    if append:
        levels = [*(optional_lod(lod, "X") or []), *levels]
    return WithLod(x.view_as(x), levels)


@op(
    "im2sequence",
    inputs="X Y?!",
    infer=shapes(
        "X",
        lambda op, x: {"Out": ((-1, x.shape[1] * math.prod(op.attr("kernels"))), x.dtype, 1)},
        rank=4,
    ),
    lod="none",
)
def im2sequence(
    x: Any,
    y: Any,
    *,
    kernels: Any = [1, 1],
    strides: Any = [1, 1],
    paddings: Any = [0, 0, 0, 0],
    out_stride: Any = [1, 1],
    lod: Lods,
) -> Any:
    """Return each image as the sequence of its patches, row by row."""
    up, left, down, right = paddings
    if y is not None:
        real = -(-y[: len(x)].cpu().long().numpy() // np.asarray(out_stride))
        out = (real + [up + down, left + right] - np.asarray(kernels)) // np.asarray(strides) + 1
        # A real size may exceed that of the images: everything beyond them is zero.
        need = (out.max(0) - 1) * np.asarray(strides) + np.asarray(kernels)
        down += max(0, int(need[0]) - x.shape[2] - up - down)
        right += max(0, int(need[1]) - x.shape[3] - left - right)
    patches = F.unfold(F.pad(x, (left, right, up, down)), tuple(kernels), stride=tuple(strides))
    rows = patches.transpose(1, 2)
    if y is None:
        sizes = [rows.shape[1]] * len(x)
        return WithLod(rows.reshape(-1, rows.shape[2]), [offsets_of(sizes)])
    # Images padded to one size: take the patches of each one's real height and width.
    width = (x.shape[3] + left + right - kernels[1]) // strides[1] + 1
    index = [
        (np.arange(h)[:, None] * width + np.arange(w)).reshape(-1) + i * rows.shape[1]
        for i, (h, w) in enumerate(out.tolist())
    ]
    flat = rows.reshape(-1, rows.shape[2])
    return WithLod(
        flat[as_tensor(np.concatenate(index), x.device)], [offsets_of(len(i) for i in index)]
    )
