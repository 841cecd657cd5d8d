"""The op that keeps the instances of a batch that have one of the wanted tags."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import Long, op
from fleetx.static.shapes.infer_rules import known, refuse, set_output
from fleetx.static.shapes.lod import Lods, WithLod, as_tensor, lod_of, offsets_of, runs


@known("Ins")
def _infer(op: Any, block: Any, ins: Any) -> None:
    if len(ins.shape) < 2:
        raise refuse(op, block, "instances must have 2 dimensions or more.")
    set_output(op, block, "Out", (-1, *ins.shape[1:]), ins.dtype, 1)
    set_output(op, block, "LossWeight", (-1, 1), VarType.FP32, 1)
    set_output(op, block, "IndexMap", (-1, 3), VarType.INT64, 1)


@op(
    "filter_by_instag",
    inputs="Ins Ins_tag! Filter_tag!",
    outputs="Out LossWeight IndexMap",
    infer=_infer,
    lod="none",
)
def filter_by_instag(
    ins: Tensor,
    tags: Tensor,
    wanted: Tensor,
    *,
    is_lod: bool = True,
    out_val_if_empty: Long = 0,
    lod: Lods,
) -> tuple[WithLod, WithLod, WithLod]:
    """Return the rows of instances with a wanted tag, a weight of 1 each, and where they were.

    If there are none, the result is one row of `out_val_if_empty` with weight 0.
    """
    bounds = np.asarray(lod_of(lod, "Ins_tag", "filter_by_instag")[0])
    rows = lod_of(lod, "Ins", "filter_by_instag")[0] if is_lod else range(len(ins) + 1)
    if len(rows) != len(bounds):
        raise ValueError(
            f"filter_by_instag got {len(rows) - 1} instances, but tags for {len(bounds) - 1}."
        )
    hits = torch.isin(tags.reshape(-1), wanted.reshape(-1)).cpu().numpy()
    kept = np.diff(np.concatenate([[0], hits.cumsum()])[bounds]) > 0
    starts, lengths = np.asarray(rows)[:-1][kept], np.diff(rows)[kept]
    if not len(starts):
        out = ins.new_full((1, *ins.shape[1:]), out_val_if_empty)
        weight = torch.zeros((1, 1), device=ins.device)
        one = [[0, 1]]
        where = as_tensor([[0, 1, 1]], ins.device)
        return WithLod(out, one), WithLod(weight, one), WithLod(where, one)
    offsets = offsets_of(lengths.tolist())
    where = as_tensor(np.stack([offsets[:-1], starts, lengths], 1), ins.device)
    weight = torch.ones((len(starts), 1), device=ins.device)
    each = [list(range(len(starts) + 1))]
    out = ins[runs(starts, lengths, ins.device)]
    return WithLod(out, [offsets]), WithLod(weight, each), WithLod(where, each)
