"""Ops on arrays of tensors, and the rank table with which recurrent layers step through sequences.

An array is a Python list that is copied when written. An element with sequences of its own is a
`WithLod`. A rank table lists the sequences of a batch by decreasing length, so that at every time
step the sequences that have not ended come first: `lod_tensor_to_array` splits a batch into time
steps in that order, and `array_to_lod_tensor` joins them again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import detached_op, no_infer, op
from fleetx.static.shapes.infer_rules import always, rows_like, shapes
from fleetx.static.shapes.lod import (
    LoD,
    Lods,
    WithLod,
    as_tensor,
    lod_of,
    offsets_of,
    optional_lod,
    runs,
)

Array = list[Any]


_infer_element = rows_like("X", same_number=True)
_infer_number = always((1,), VarType.INT64)


def _joined(op: Any, x: Any) -> dict[str, Any]:
    """Return the shapes; elements are alike, but their number is known only at run time."""
    shape, axis = list(x.shape), op.attr("axis")
    if op.attr("use_stack"):
        shape.insert(axis + len(shape) + 1 if axis < 0 else axis, -1)
    else:
        shape[axis] = -1
    return {"Out": (shape, x.dtype), "OutIndex": ((-1,), VarType.INT32)}


# -- arrays ------------------------------------------------------------------------------------
@op("write_to_array", inputs="X I! Out?", infer=_infer_element, lod="none")
def write_to_array(x: Any, i: Any, old: Array | None, *, lod: Lods) -> Array:
    """Put X at place I of the array; places in between, if any, stay empty."""
    array = list(old or [])
    place = int(i)
    array += [None] * (place + 1 - len(array))
    levels = optional_lod(lod, "X")
    array[place] = WithLod(x, levels) if levels else x
    return array


@op("read_from_array", inputs="X I! X_W?!", infer=_infer_element, lod="none")
def read_from_array(array: Array | None, i: Any, sizes: Any, *, lod: Lods) -> Any:
    """Return the element at place I."""
    place = int(i)
    if array is None or not 0 <= place < len(array) or array[place] is None:
        raise IndexError(
            f"an array of {len(array or [])} elements was read at place {place}, "
            "where nothing was written."
        )
    return array[place]


@detached_op("lod_array_length", inputs="X?", infer=_infer_number)
def lod_array_length(array: Array | None) -> Any:
    """Return the number of places in the array."""
    return torch.tensor([len(array or [])])


@op("tensor_array_to_tensor", outputs="Out OutIndex", infer=shapes("X", _joined), lod="none")
def tensor_array_to_tensor(array: Array, *, axis: int = 0, use_stack: bool = False) -> Any:
    """Join the elements along an axis, or stack them along a new one; also return their sizes."""
    values = [_tensor(v) for v in array]
    sizes = [v.shape[axis] if axis < v.ndim else 1 for v in values]
    joined = torch.stack(values, axis) if use_stack else torch.cat(values, axis)
    return joined, torch.tensor(sizes, dtype=torch.int32, device=joined.device)


def _tensor(value: Any) -> torch.Tensor:
    return value.tensor if isinstance(value, WithLod) else value


def _picked(x: Any, units: np.ndarray[Any, Any], levels: LoD) -> Any:
    """Return some units (sequences, or rows if there are no levels) of X, in this order."""
    found = []
    for level in levels:
        offsets = np.asarray(level)
        sizes = np.diff(offsets)[units]
        found.append(offsets_of(sizes.tolist()))
        units = runs(offsets[:-1][units], sizes, "cpu").numpy()
    rows = x[as_tensor(units, x.device)]
    return WithLod(rows, found) if found else rows


def _levels(value: Any) -> LoD:
    return (value.lod or []) if isinstance(value, WithLod) else []


# -- the rank table ----------------------------------------------------------------------------
class RankTable:
    """The sequences of one level of a batch, longest first; equal ones in their own order."""

    def __init__(self, levels: LoD, level: int) -> None:
        lengths = np.diff(levels[level])
        self.level = level
        self.above = levels[:level]
        self.index = np.argsort(-lengths, kind="stable")
        self.lengths = lengths[self.index]

    @property
    def longest(self) -> int:
        """The number of time steps."""
        return int(self.lengths.max(initial=0))

    def items(self) -> list[tuple[int, int]]:
        """Return each sequence's number and length."""
        return list(zip(self.index.tolist(), self.lengths.tolist(), strict=True))

    def going_on(self, step: int) -> int:
        """Return how many sequences have a row at this time step."""
        return int((self.lengths > step).sum())


@detached_op("lod_rank_table", infer=no_infer)
def lod_rank_table(x: Any, *, level: int = 0, lod: Lods) -> RankTable:
    """Rank the sequences of X."""
    return RankTable(lod_of(lod, "X", "lod_rank_table"), level)


@detached_op("max_sequence_len", inputs="RankTable", infer=_infer_number)
def max_sequence_len(table: RankTable) -> Any:
    """Return the number of time steps of the longest sequence."""
    return torch.tensor([table.longest])


@op(
    "lod_tensor_to_array",
    inputs="X RankTable!",
    infer=rows_like("X", level=lambda n: max(n - 1, 0)),
    lod="none",
)
def lod_tensor_to_array(x: Any, table: RankTable, *, lod: Lods) -> Array:
    """Cut a batch of sequences into time steps; step t holds the t-th row of each that has one."""
    levels = lod_of(lod, "X", "lod_tensor_to_array")
    starts = np.asarray(levels[table.level])[table.index]
    deeper = levels[table.level + 1 :]
    steps = range(table.longest)
    return [_picked(x, starts[: table.going_on(step)] + step, deeper) for step in steps]


@op(
    "array_to_lod_tensor",
    inputs="X RankTable!",
    infer=rows_like("X", level=lambda n: n + 1),
    lod="none",
)
def array_to_lod_tensor(array: Array, table: RankTable, *, lod: Lods) -> Any:
    """Join time steps to sequences again, in the order of the batch."""
    joined = torch.cat([_tensor(v) for v in array])
    counts = [len(_levels(v)[0]) - 1 if _levels(v) else len(_tensor(v)) for v in array]
    sizes = zip(*(map(np.diff, _levels(v)) for v in array), strict=True)
    inner = [offsets_of(np.concatenate(parts).tolist()) for parts in sizes]
    # Units of all steps are in one list; each sequence takes its own from every step it has.
    rank = np.argsort(table.index)
    lengths = table.lengths[rank]
    step = np.concatenate([np.arange(n) for n in lengths])
    units = np.asarray(offsets_of(counts))[step] + np.repeat(rank, lengths)
    found = _picked(joined, units, inner)
    return WithLod(_tensor(found), [*table.above, offsets_of(lengths.tolist()), *_levels(found)])


@op("shrink_rnn_memory", inputs="X RankTable! I!", infer=rows_like("X"), lod="none")
def shrink_rnn_memory(x: Any, table: RankTable, i: Any, *, lod: Lods) -> Any:
    """Keep the rows of the sequences that have not ended at time step I."""
    count = table.going_on(int(i))
    levels = optional_lod(lod, "X")
    if levels is None:
        return x[:count]
    return WithLod(x[: levels[0][count]], [levels[0][: count + 1]])


@op("reorder_lod_tensor_by_rank", inputs="X RankTable!", infer=rows_like("X"), lod="none")
def reorder_lod_tensor_by_rank(x: Any, table: RankTable, *, lod: Lods) -> Any:
    """Bring rows (or sequences) into the order of the rank table."""
    return _picked(x, table.index, optional_lod(lod, "X") or [])
