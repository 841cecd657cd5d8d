"""Ops within sequences of a batch: pooling, softmax, window, order, and parts of each sequence.

All work on the flat rows of all sequences at once, with indices made from the offsets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fleetx.static.graph.dtypes import VarType, to_torch
from fleetx.static.graph.op_registry import detached_op, op
from fleetx.static.shapes.infer_rules import projected, rows_like, shapes
from fleetx.static.shapes.lod import (
    Lods,
    WithLod,
    as_tensor,
    lengths_of,
    lod_of,
    offsets_of,
    runs,
    segment_ids,
)


def _column(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Shape one number per row so that it broadcasts over the rows' other dimensions."""
    return values.view(-1, *([1] * (like.dim() - 1)))


def _segment_sum(x: torch.Tensor, ids: torch.Tensor, count: int) -> torch.Tensor:
    return x.new_zeros((count, *x.shape[1:])).index_add(0, ids, x)


def _segment_max(x: torch.Tensor, ids: torch.Tensor, count: int) -> torch.Tensor:
    index = _column(ids, x).expand_as(x)
    start = x.new_full((count, *x.shape[1:]), float("-inf"))
    return start.scatter_reduce(0, index, x, "amax")


def _argmax_rows(x: torch.Tensor, ids: torch.Tensor, count: int) -> torch.Tensor:
    """Return the row of each sequence's first largest element; `len(x)` for an empty sequence."""
    with torch.no_grad():
        best = _segment_max(x, ids, count)
        rows = _column(torch.arange(len(x), device=x.device), x).expand_as(x)
        rows = torch.where(x == best[ids], rows, len(x))
        index = _column(ids, x).expand_as(x)
        start = rows.new_full((count, *x.shape[1:]), len(x))
        return start.scatter_reduce(0, index, rows, "amin")


def _pooled(op: Any, x: Any) -> dict[str, Any]:
    shape = (-1, *x.shape[1:])
    index = {"MaxIndex": (shape, VarType.INT32)} if op.attr("pooltype") == "MAX" else {}
    return {"Out": (shape, x.dtype, max(x.lod_level - 1, 0)), **index}


@op(
    "sequence_pool",
    outputs="Out MaxIndex?",
    attrs={"is_test": False},
    infer=shapes("X", _pooled),
    lod="none",
)
def sequence_pool(x: Any, *, pooltype: str = "AVERAGE", pad_value: float = 0.0, lod: Lods) -> Any:
    """Reduce every sequence to one row; an empty one gives rows of `pad_value`."""
    levels = lod_of(lod, "X", "sequence_pool")
    offsets = levels[-1]
    lengths = lengths_of(offsets)
    empty = 0 in lengths
    argmax = None
    if pooltype in ("SUM", "AVERAGE", "SQRT"):
        out = _segment_sum(x, segment_ids(offsets, x.device), len(lengths))
        if pooltype != "SUM":
            sizes = torch.tensor(lengths, dtype=x.dtype, device=x.device).clamp_(min=1)
            out = out / _column(sizes if pooltype == "AVERAGE" else sizes.sqrt(), out)
    elif pooltype in ("FIRST", "LAST"):
        ends = offsets[:-1] if pooltype == "FIRST" else [end - 1 for end in offsets[1:]]
        source = x if len(x) else x.new_zeros((1, *x.shape[1:]))
        out = source[as_tensor(np.clip(ends, 0, len(source) - 1), x.device)]
    elif pooltype == "MAX":
        rows = _argmax_rows(x, segment_ids(offsets, x.device), len(lengths))
        source = torch.cat([x, x.new_full((1, *x.shape[1:]), pad_value)]) if empty else x
        out = source.gather(0, rows)
        argmax = rows.to(torch.int32)
    else:
        raise ValueError(
            "pool_type of sequence_pool must be sum, average, sqrt, max, last or first, "
            f"not {pooltype!r}."
        )
    if empty:
        hole = as_tensor(lengths, x.device) == 0
        out = torch.where(_column(hole, out), pad_value, out)
    return WithLod(out, levels[:-1] or None), argmax


@op(
    "sequence_softmax",
    attrs={"use_cudnn": False, "data_format": "AnyLayout"},
    infer=rows_like("X"),
)
def sequence_softmax(x: Any, *, lod: Lods) -> Any:
    """Normalise the one number per row over each sequence."""
    offsets = lod_of(lod, "X", "sequence_softmax")[-1]
    if x.numel() != len(x):
        raise ValueError(
            f"sequence_softmax takes one number per row (shape [N, 1]), not shape {list(x.shape)}."
        )
    ids, count = segment_ids(offsets, x.device), len(offsets) - 1
    largest = _segment_max(x.detach(), ids, count)
    powers = torch.exp(x - largest[ids])
    return powers / _segment_sum(powers, ids, count)[ids]


@op(
    "sequence_conv",
    inputs="X PaddingData? Filter",
    infer=projected("X", "Filter", 1, "Out", rank=2),
)
def sequence_conv(
    x: Any,
    padding: Any,
    weight: Any,
    *,
    paddingTrainable: bool = False,
    contextLength: int = 3,
    contextStart: int = 0,
    contextStride: int = 1,
    lod: Lods,
) -> Any:
    """Multiply each row's window of neighbours with the filter.

    Beyond the ends of a sequence are zeros, with `paddingTrainable` the rows of PaddingData: first
    those before the first row, then those after the last.
    """
    if contextStride != 1:
        raise ValueError(f"contextStride of sequence_conv must be 1, but is {contextStride}.")
    before, behind = max(0, -contextStart), max(0, contextStart + contextLength - 1)
    if paddingTrainable:
        wanted = (before + behind, x.shape[1])
        if padding is None or tuple(padding.shape) != wanted:
            given = "missing" if padding is None else f"of shape {tuple(padding.shape)}"
            raise ValueError(
                f"PaddingData of sequence_conv is {given}, but paddingTrainable with contextStart "
                f"{contextStart} and contextLength {contextLength} needs shape {wanted}."
            )
    offsets = lod_of(lod, "X", "sequence_conv")[-1]
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
    size = np.repeat(np.diff(offsets), np.diff(offsets))
    window = place[:, None] + np.arange(contextStart, contextStart + contextLength)
    rows = window + (np.arange(offsets[-1]) - place)[:, None]
    if paddingTrainable:
        rows = np.where(window < 0, len(x) + before + window, rows)
        rows = np.where(window >= size[:, None], len(x) + before + window - size[:, None], rows)
        padded = torch.cat([x, padding])
    else:
        rows = np.where((window >= 0) & (window < size[:, None]), rows, len(x))
        padded = torch.cat([x, x.new_zeros((1, *x.shape[1:]))])
    return padded[as_tensor(rows, x.device)].reshape(len(x), -1) @ weight


@op("sequence_reverse", outputs="Y", infer=rows_like("X", "Y"))
def sequence_reverse(x: Any, *, lod: Lods) -> Any:
    """Reverse the rows within each sequence."""
    offsets = lod_of(lod, "X", "sequence_reverse")[-1]
    ends = np.repeat(np.asarray(offsets[1:]), np.diff(offsets))
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
    return x[as_tensor(ends - 1 - place, x.device)]


@op("sequence_slice", inputs="X Offset! Length!", infer=rows_like("X"), lod="none")
def sequence_slice(x: Any, offset: Any, length: Any, *, lod: Lods) -> Any:
    """Take from each sequence the rows [offset, offset + length)."""
    offsets = lod_of(lod, "X", "sequence_slice")[-1]
    starts, sizes = offset.reshape(-1).cpu().numpy(), length.reshape(-1).cpu().numpy()
    have = np.diff(offsets)
    if len(starts) != len(have) or len(sizes) != len(have):
        raise ValueError(
            f"sequence_slice needs one offset and one length per sequence ({len(have)}), "
            f"but has {len(starts)} and {len(sizes)}."
        )
    bad = (starts < 0) | (sizes < 0) | (starts + sizes > have)
    if bad.any():
        i = int(bad.argmax())
        raise ValueError(
            f"sequence_slice takes rows {starts[i]} to {starts[i] + sizes[i]} of sequence {i}, "
            f"which has {have[i]} rows."
        )
    rows = runs(starts + np.asarray(offsets[:-1]), sizes, x.device)
    return WithLod(x[rows], [offsets_of(sizes.tolist())])


@op(
    "sequence_enumerate",
    grad=None,
    infer=shapes(
        "X",
        lambda op, x: {"Out": ((*x.shape[:1], op.attr("win_size")), x.dtype, x.lod_level)},
    ),
)
def sequence_enumerate(x: Any, *, win_size: int = 2, pad_value: int = 0, lod: Lods) -> Any:
    """Return for each number the window of `win_size` numbers that starts with it."""
    offsets = lod_of(lod, "X", "sequence_enumerate")[-1]
    rows = torch.arange(len(x), device=x.device)
    ends = as_tensor(np.repeat(np.asarray(offsets[1:]), np.diff(offsets)), x.device)
    window = rows[:, None] + torch.arange(win_size, device=x.device)
    flat = torch.cat([x.reshape(-1), x.new_full((1,), pad_value)])
    return flat[torch.where(window < ends[:, None], window, len(x))]


@detached_op("sequence_erase", infer=rows_like("X"))
def sequence_erase(x: Any, *, tokens: list[int] = [], lod: Lods) -> Any:
    """Remove the given numbers."""
    levels = lod_of(lod, "X", "sequence_erase")
    keep = ~torch.isin(x.reshape(-1), torch.tensor(tokens, dtype=x.dtype, device=x.device))
    kept = offsets_of(keep.cpu().long().tolist())
    return WithLod(x[keep], [*levels[:-1], [kept[end] for end in levels[-1]]])


@op("sequence_scatter", inputs="X Ids! Updates", infer=rows_like("X"), lod="none")
def sequence_scatter(x: Any, ids: Any, updates: Any, *, lod: Lods) -> Any:
    """Add sequence i's updates to row i, at the columns that Ids names."""
    offsets = lod_of(lod, "Ids", "sequence_scatter")[-1]
    if len(offsets) - 1 != len(x):
        raise ValueError(
            f"sequence_scatter has {len(x)} rows of X but {len(offsets) - 1} sequences of Ids."
        )
    rows = segment_ids(offsets, x.device)
    return x.index_put((rows, ids.reshape(-1).long()), updates.reshape(-1), accumulate=True)


def _mask(op: Any, x: Any) -> dict[str, Any]:
    fixed = op.attr("maxlen") if not op.input("MaxLenTensor") else -1
    return {"Y": ((*x.shape, fixed if fixed > 0 else -1), op.attr("out_dtype"))}


@detached_op("sequence_mask", inputs="X MaxLenTensor?", outputs="Y", infer=shapes("X", _mask))
def sequence_mask(x: Any, max_len: Any, *, maxlen: int = -1, out_dtype: int = 3) -> Any:
    """Return for each length n a row of n ones followed by zeros."""
    if max_len is not None:
        maxlen = int(max_len.reshape(-1)[0])
    elif maxlen < 0:
        maxlen = int(x.max())
    columns = torch.arange(maxlen, device=x.device)
    return (columns < x.unsqueeze(-1)).to(to_torch(out_dtype))
