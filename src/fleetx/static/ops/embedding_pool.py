"""Embedding lookup and sum over each sequence in one op."""

from __future__ import annotations

import math
from typing import Any

import torch

from fleetx.static.graph.op_registry import Long, op
from fleetx.static.shapes.infer_rules import shapes
from fleetx.static.shapes.lod import Lods, WithLod, as_tensor, lod_of


@op(
    "fused_embedding_seq_pool",
    inputs="W Ids!",
    attrs={"grad_inplace": False, "is_sparse": False},
    infer=shapes(
        "W Ids", lambda op, w, ids: {"Out": ((-1, w.shape[1] * math.prod(ids.shape[1:])), w.dtype)}
    ),
    lod="none",
)
def fused_embedding_seq_pool(
    weight: Any,
    ids: Any,
    *,
    combiner: str = "sum",
    padding_idx: Long = -1,
    lod: Lods,
) -> Any:
    """Return for every sequence of ids the sum of their rows; `padding_idx` counts as zeros.

    Several ids per position are columns of their own, whose sums stand side by side.
    """
    if combiner != "sum":
        raise ValueError(f"combiner of fused_embedding_seq_pool must be 'sum', not {combiner!r}.")
    offsets = as_tensor(lod_of(lod, "Ids", "fused_embedding_seq_pool")[-1][:-1], weight.device)
    rows, sequences = len(ids), len(offsets)
    columns = math.prod(ids.shape[1:])
    starts = offsets + rows * torch.arange(columns, device=weight.device).reshape(-1, 1)
    out = torch.nn.functional.embedding_bag(
        ids.reshape(rows, columns).t().reshape(-1).long(),
        weight,
        starts.reshape(-1),
        mode="sum",
        padding_idx=padding_idx if padding_idx >= 0 else None,
    )
    return WithLod(out.view(columns, sequences, -1).transpose(0, 1).reshape(sequences, -1), None)
