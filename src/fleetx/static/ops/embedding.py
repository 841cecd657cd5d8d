"""Table look-up: rows of W by integer ids.

All look-ups of a step in one table are fused into one, so that its gradient is computed once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from fleetx import torch_private
from fleetx.kernels.fetched_rows import spread_rows
from fleetx.static.graph.op_registry import Attr, op

TABLE_ATTRS = {
    "is_sparse": False,
    # Without `is_sparse`: W has the rows of this batch only, fetched from servers.
    "remote_prefetch": False,
    "trainer_id": 0,
    "height_sections": Attr("LONGS", []),
    "epmap": Attr("STRINGS", []),
    "table_names": Attr("STRINGS", []),
}
_ATTRS = {**TABLE_ATTRS, "is_distributed": False, "padding_idx": Attr("LONG", -1)}

_Calls = Sequence[tuple[torch.Tensor, torch.Tensor]]


def _look_up_together(calls: _Calls, **attrs: Any) -> list[torch.Tensor]:
    """Look up several ids in one table, which is that of the first call."""
    weight, every = calls[0][0], [ids for _, ids in calls]
    rows = _lookup_table_v2(weight, torch.cat([ids.reshape(-1) for ids in every]), **attrs)
    parts = rows.split([ids.numel() for ids in every])
    dim = weight.shape[1]
    return [part.view(*ids.shape, dim) for part, ids in zip(parts, every, strict=True)]


def _without_last(ids: torch.Tensor) -> torch.Tensor:
    if ids.shape[-1] != 1:
        raise ValueError(
            f"the last dimension of the ids must be 1, but their shape is {tuple(ids.shape)}."
        )
    return ids.squeeze(-1)


@op("lookup_table_v2", inputs="W Ids!", attrs=_ATTRS, fused=_look_up_together)
def _lookup_table_v2(
    weight: torch.Tensor,
    ids: torch.Tensor,
    *,
    padding_idx: int = -1,
    is_sparse: bool = False,
    remote_prefetch: bool = False,
) -> torch.Tensor:
    if remote_prefetch and not is_sparse:  # a program for servers: they send each row once
        rows = spread_rows(weight, ids)
    else:
        # With `is_sparse`, the gradient of a table consists of the rows looked up. Only that of a
        # leaf: no op of the backward pass takes it. A tracer (shape inference, compilation) has no
        # sparse tensors.
        sparse = is_sparse and weight.is_leaf and not weight.is_meta
        sparse = sparse and torch_private.current_dispatch_mode() is None
        rows = F.embedding(ids, weight, sparse=sparse)
    if padding_idx < 0:
        return rows
    # The row of the padding id reads as zeros, whatever it holds, and gets no gradient.
    return rows * (ids != padding_idx).unsqueeze(-1)


@op(
    "lookup_table",
    inputs="W Ids!",
    attrs={**_ATTRS, "grad_inplace": False},
    fused=lambda calls, **attrs: _look_up_together(
        [(weight, _without_last(ids)) for weight, ids in calls], **attrs
    ),
)
@functools.wraps(_lookup_table_v2)
def _lookup_table(weight: torch.Tensor, ids: torch.Tensor, **attrs: Any) -> torch.Tensor:
    return _lookup_table_v2(weight, _without_last(ids), **attrs)
