"""Which box of the truth each prior learns: matching, targets, and the negatives that count."""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import detached_op
from fleetx.static.shapes.infer_rules import shapes
from fleetx.static.shapes.lod import Lods, WithLod, lengths_of, lod_of, offsets_of, optional_lod

_NO_MATCH = 1e-6  # nothing below counts as an overlap


def _match(distance: Tensor, per_prediction: bool, threshold: float) -> tuple[Tensor, Tensor]:
    """Match the greatest entry, then the greatest outside its row and column, and so on."""
    rows, columns = distance.shape
    index = torch.full((columns,), -1, dtype=torch.int32)
    found = distance.new_zeros(columns)
    left = distance.clone()
    for _ in range(min(rows, columns)):
        # By columns first: of equal entries, that of the first column is taken.
        place = int(left.t().reshape(-1).argmax())
        column, row = divmod(place, rows)
        if left[row, column] < _NO_MATCH:
            break
        index[column], found[column] = row, distance[row, column]
        left[row], left[:, column] = -1, -1
    if per_prediction and rows:
        best, rows_of = distance.max(0)
        more = (index < 0) & (best >= max(threshold, _NO_MATCH))
        index = torch.where(more, rows_of.to(torch.int32), index)
        found = torch.where(more, best, found)
    return index, found


@detached_op(
    "bipartite_match",
    inputs="DistMat",
    outputs="ColToRowMatchIndices ColToRowMatchDist",
    infer=shapes(
        "DistMat",
        lambda op, x: {
            "ColToRowMatchIndices": ((-1, x.shape[1]), VarType.INT32),
            "ColToRowMatchDist": ((-1, x.shape[1]), x.dtype),
        },
    ),
)
def bipartite_match(
    distance: Tensor, *, match_type: str = "bipartite", dist_threshold: float = 0.5, lod: Lods
) -> tuple[Tensor, Tensor]:
    """Return for each column its row, or -1, and their overlap; a matrix per sequence."""
    offsets = optional_lod(lod, "DistMat")
    lengths = lengths_of(offsets[-1]) if offsets else [len(distance)]
    per_prediction = match_type == "per_prediction"
    pairs = [_match(d, per_prediction, dist_threshold) for d in distance.cpu().split(lengths)]
    index, found = (torch.stack(rows).to(distance.device) for rows in zip(*pairs, strict=True))
    return index, found


@detached_op(
    "target_assign",
    inputs="X MatchIndices NegIndices?",
    outputs="Out OutWeight",
    infer=shapes(
        "X MatchIndices",
        lambda op, x, match: {
            "Out": ((*match.shape, x.shape[-1]), x.dtype),
            "OutWeight": ((*match.shape, 1), VarType.FP32),
        },
    ),
)
def target_assign(
    x: Tensor, match: Tensor, negatives: Tensor | None, *, mismatch_value: int = 0, lod: Lods
) -> tuple[Tensor, Tensor]:
    """Give each prior the row of its match with weight 1, others a constant with weight 0 or 1."""
    starts = torch.tensor(lod_of(lod, "X", "target_assign")[-1][:-1], device=x.device)
    count, priors = match.shape
    matched = match >= 0
    row = (starts[:, None] + match.clamp_min(0)).reshape(-1)
    column = torch.arange(priors, device=x.device).repeat(count) % x.shape[1]
    out = torch.full((count, priors, x.shape[2]), mismatch_value, dtype=x.dtype, device=x.device)
    if len(x):
        values = x[row.clamp_max(len(x) - 1), column].reshape(count, priors, -1)
        out = torch.where(matched[:, :, None], values, out)
    weight = matched.to(torch.float32)[:, :, None]
    if negatives is not None:
        lengths = lengths_of(lod_of(lod, "NegIndices", "target_assign")[-1])
        for i, part in enumerate(negatives.reshape(-1).long().split(lengths)):
            out[i, part] = mismatch_value
            weight[i, part] = 1.0
    return out, weight


@detached_op(
    "mine_hard_examples",
    inputs="ClsLoss LocLoss? MatchIndices MatchDist",
    outputs="NegIndices UpdatedMatchIndices",
    infer=shapes(
        "MatchIndices",
        lambda op, match: {
            "NegIndices": ((-1, 1), VarType.INT32, 1),
            "UpdatedMatchIndices": (match.shape, match.dtype),
        },
    ),
)
def mine_hard_examples(
    cls_loss: Tensor,
    loc_loss: Tensor | None,
    match: Tensor,
    distance: Tensor,
    *,
    neg_pos_ratio: float = 1.0,
    neg_dist_threshold: float = 0.5,
    sample_size: int = 0,
    mining_type: str = "max_negative",
    lod: Lods,
) -> tuple[WithLod, Tensor]:
    """Choose the unmatched priors with the greatest loss.

    `max_negative` takes a multiple of the number of matches; `hard_example` a number of priors, and
    drops the matches that are not among them.
    """
    del lod  # taken so that the result may have offsets
    negatives, kept = [], match.clone()
    hard = mining_type == "hard_example"
    for i, row in enumerate(match):
        free = row == -1
        loss = cls_loss[i] + loc_loss[i] if hard and loc_loss is not None else cls_loss[i]
        eligible = torch.ones_like(free) if hard else free & (distance[i] < neg_dist_threshold)
        candidates = eligible.nonzero().reshape(-1)
        count = sample_size if hard else int(int((~free).sum()) * neg_pos_ratio)
        order = loss[candidates].argsort(descending=True, stable=True)
        chosen = torch.zeros_like(free)
        chosen[candidates[order[:count]]] = True
        if hard:
            kept[i] = torch.where(free | chosen, row, -1)
        negatives.append((chosen & free).nonzero().to(torch.int32))
    offsets = offsets_of(len(part) for part in negatives)
    return WithLod(torch.cat(negatives), [offsets]), kept
