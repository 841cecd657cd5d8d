"""Losses on distances and orderings: smooth L1, Huber, hinge, pairwise ranking, centres."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from fleetx.static.graph.op_registry import Attr, op
from fleetx.static.shapes.infer_rules import checked, input_var


def _one_shape(op: Any, block: Any) -> str | None:
    x, y = input_var(op, block, "X"), input_var(op, block, "Y")
    if x is None or y is None:
        return None
    same = len(x.shape) == len(y.shape) and all(
        a == b or -1 in (a, b) for a, b in zip(x.shape, y.shape, strict=True)
    )
    return None if same else "X and Y must have one shape."


@op(
    "smooth_l1_loss",
    infer=checked(_one_shape),
    inputs="X Y InsideWeight?! OutsideWeight?!",
    outputs="Diff Out",
)
def _smooth_l1_loss(
    x: torch.Tensor,
    y: torch.Tensor,
    inside: torch.Tensor | None,
    outside: torch.Tensor | None,
    *,
    sigma: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    difference = x - y
    if inside is not None:
        difference = difference * inside
    errors = F.smooth_l1_loss(
        difference, torch.zeros_like(difference), reduction="none", beta=1.0 / sigma**2
    )
    if outside is not None:
        errors = errors * outside
    return difference, errors.flatten(1).sum(1, keepdim=True)


@op("huber_loss", inputs="X Y", outputs="Residual Out")
def _huber_loss(
    x: torch.Tensor, y: torch.Tensor, *, delta: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    residual = y - x
    return residual, F.huber_loss(x, y, reduction="none", delta=delta)


op("hinge_loss", inputs="Logits Labels!", outputs="Loss")(
    lambda logits, labels: (1.0 - (2.0 * labels - 1.0) * logits).clamp_min(0.0)
)


@op("modified_huber_loss", inputs="X Y!", outputs="IntermediateVal Out")
def _modified_huber_loss(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    margin = (2.0 * y - 1.0) * x
    return margin, torch.where(margin < -1.0, -4.0 * margin, (1.0 - margin).clamp_min(0.0).square())


@op("bpr_loss", inputs="X Label!", outputs="Y")
def _bpr_loss(x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    label = label.reshape(-1, 1)
    chosen = x.gather(1, label)
    others = F.softplus(x - chosen).scatter(1, label, 0.0)
    return others.sum(1, keepdim=True) / (x.shape[1] - 1)


@op("rank_loss", inputs="Label! Left Right")
def _rank_loss(label: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    # Columns and flat vectors may be mixed; the result looks like the labels.
    difference = left.reshape(label.shape) - right.reshape(label.shape)
    return F.softplus(difference) - label * difference


@op("margin_rank_loss", inputs="X1 X2 Label!", outputs="Activated Out")
def _margin_rank_loss(
    x1: torch.Tensor, x2: torch.Tensor, label: torch.Tensor, *, margin: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    out = (margin - label * (x1 - x2)).clamp_min(0.0)
    return (out.detach() > 0).to(out.dtype), out


@op(
    "center_loss",
    inputs="X Label! Centers! CenterUpdateRate!",
    outputs="CentersOut=Centers SampleCenterDiff Loss",
    attrs={"cluster_num": Attr("INT", 0)},
)
def _center_loss(
    x: torch.Tensor,
    label: torch.Tensor,
    centers: torch.Tensor,
    rate: torch.Tensor,
    *,
    need_update: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return half the squared distance to each row's centre; move the centres towards the rows."""
    rows = label.reshape(-1)
    difference = x - centers[rows]
    if need_update:
        with torch.no_grad():
            pull = torch.zeros_like(centers).index_add_(0, rows, difference.detach())
            ones = torch.ones_like(rows, dtype=x.dtype)
            count = torch.ones_like(centers[:, 0]).index_add_(0, rows, ones)
            centers.add_(pull / count.unsqueeze(1) * rate)
    return centers, difference, difference.square().sum(1, keepdim=True) / 2
