"""Table look-up: rows of W by integer ids."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode

from fleetx.static.op_registry import Attr, op

_ATTRS = {
    "is_sparse": False,
    "is_distributed": False,
    "padding_idx": Attr("LONG", -1),
    "remote_prefetch": False,
    "trainer_id": 0,
    "height_sections": Attr("LONGS", []),
    "epmap": Attr("STRINGS", []),
    "table_names": Attr("STRINGS", []),
}


@op("lookup_table_v2", inputs="W Ids", outputs="Out", attrs=_ATTRS, no_grad="Ids")
def _lookup_table_v2(
    weight: torch.Tensor, ids: torch.Tensor, *, padding_idx: int, is_sparse: bool
) -> torch.Tensor:
    # With `is_sparse`, many look-ups in one table add up rows, and the table's whole gradient is
    # made once. A tracer (shape inference, compilation) has no sparse tensors.
    sparse = is_sparse and _get_current_dispatch_mode() is None and not weight.is_meta
    rows = F.embedding(ids, weight, sparse=sparse)
    if padding_idx < 0:
        return rows
    # The row of the padding id reads as zeros, whatever it holds, and gets no gradient.
    return rows * (ids != padding_idx).unsqueeze(-1)


@op(
    "lookup_table",
    inputs="W Ids",
    outputs="Out",
    attrs={**_ATTRS, "grad_inplace": False},
    no_grad="Ids",
)
def _lookup_table(
    weight: torch.Tensor, ids: torch.Tensor, *, padding_idx: int, is_sparse: bool
) -> torch.Tensor:
    if ids.shape[-1] != 1:
        raise ValueError(
            f"the last dimension of the ids must be 1, but their shape is {tuple(ids.shape)}."
        )
    ids = ids.squeeze(-1)
    return _lookup_table_v2(weight, ids, padding_idx=padding_idx, is_sparse=is_sparse)
