"""The op that multiplies rows by matrices chosen by pairs of ranks, as ads of one page view are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import known, refuse, set_output


@known("X", "RankOffset", "RankParam")
def _infer(op: Any, block: Any, x: Any, offset: Any, param: Any) -> None:
    ranks = op.attr("MaxRank")
    if len(offset.shape) != 2 or offset.shape[1] != 2 * ranks + 1:
        raise refuse(op, block, f"RankOffset needs {2 * ranks + 1} columns (max_rank {ranks}).")
    if len(param.shape) != 2 or param.shape[0] != ranks * ranks * x.shape[1]:
        raise refuse(op, block, f"RankParam needs {ranks * ranks * x.shape[1]} rows.")
    set_output(op, block, "Out", (x.shape[0], param.shape[1]), x.dtype)


@op("rank_attention", inputs="X! RankOffset! RankParam", infer=_infer)
def rank_attention(x: Tensor, offset: Tensor, param: Tensor, *, MaxRank: int = 3) -> Tensor:
    """Add up, per row, the rows it refers to, each times the matrix of both ranks.

    A row of RankOffset is the row's own rank and, for each of `MaxRank` others, a rank and the
    number of a row of X; ranks begin at 1, and 0 means that there is none.
    """
    own, ranks, rows = offset[:, :1].long(), offset[:, 1::2].long(), offset[:, 2::2].long()
    known = (own > 0) & (ranks > 0)
    matrices = param.reshape(MaxRank * MaxRank, x.shape[1], -1)
    which = torch.where(known, (own - 1) * MaxRank + ranks - 1, 0)
    seen = x[torch.where(known, rows, 0)] * known[..., None]
    # Rows are grouped by matrix, so that no matrix is copied for every row that uses it.
    place = torch.nn.functional.one_hot(which, MaxRank * MaxRank).to(x.dtype)
    return torch.einsum("nkm,nkf,mfo->no", place, seen, matrices)
