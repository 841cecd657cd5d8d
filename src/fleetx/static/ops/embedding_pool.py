"""Embedding lookup and sum over each sequence in one op."""

from __future__ import annotations

from typing import Any

import torch

from fleetx.static.graph.op_registry import Long, op
from fleetx.static.shapes.lod import LoD, WithLod, as_tensor, lod_of
from fleetx.static.shapes.lod_infer import input_var, set_output


def _infer(op: Any, block: Any) -> None:
    weight = input_var(op, block, "W")
    set_output(op, block, "Out", (-1, weight.shape[1]), weight.dtype)


@op(
    "fused_embedding_seq_pool",
    inputs="W Ids",
    attrs={"grad_inplace": False, "is_sparse": False},
    no_grad="Ids",
    infer=_infer,
    lod="none",
)
def fused_embedding_seq_pool(
    weight: Any,
    ids: Any,
    *,
    combiner: str = "sum",
    padding_idx: Long = -1,
    lod: dict[str, list[LoD | None]],
) -> Any:
    """Return for every sequence of ids the sum of their rows; `padding_idx` counts as zeros."""
    if combiner != "sum":
        raise ValueError(f"combiner of fused_embedding_seq_pool must be 'sum', not {combiner!r}.")
    offsets = as_tensor(lod_of(lod, "Ids", "fused_embedding_seq_pool")[-1][:-1], weight.device)
    out = torch.nn.functional.embedding_bag(
        ids.reshape(-1).long(),
        weight,
        offsets,
        mode="sum",
        padding_idx=padding_idx if padding_idx >= 0 else None,
    )
    return WithLod(out, None)
