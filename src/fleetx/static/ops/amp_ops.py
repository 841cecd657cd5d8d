"""Loss scaling: check_finite_and_unscale and update_loss_scaling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fleetx import torch_private
from fleetx.kernels.loss_scale import all_finite, follow_overflow, unscale_
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import op
from fleetx.static.ops.optimizer_ops import infer_inplace
from fleetx.static.shapes.infer_rules import set_output


def _infer_check(op: Any, block: Any) -> None:
    infer_inplace(op, block)
    set_output(op, block, "FoundInfinite", (1,), VarType.BOOL)


def _check_all(rows: Sequence[tuple[list[Tensor], Tensor]]) -> list[tuple[list[Tensor], Tensor]]:
    """Do several checks in one pass over all their gradients."""
    for scale in {id(scale): scale for _, scale in rows}.values():
        grads = [g for group, own in rows if own is scale for g in group]
        unscale_(grads, scale)
    fine = all_finite([g for grads, _ in rows for g in grads])
    return [
        (grads, torch.tensor([not (fine or all_finite(grads))], device=scale.device))
        for grads, scale in rows
    ]


@op(
    "check_finite_and_unscale",
    inputs="X* Scale",
    outputs="Out*=X FoundInfinite",
    grad=None,
    infer=_infer_check,
    fused=_check_all,
)
def check_finite_and_unscale(grads: list[Tensor], scale: Tensor) -> tuple[list[Tensor], Tensor]:
    """Divide gradients by the loss scale and tell whether any of them is infinite or NaN."""
    return _check_all([(grads, scale)])[0]


@op(
    "update_loss_scaling",
    inputs="X* FoundInfinite PrevLossScaling InGoodSteps InBadSteps",
    outputs="Out*=X LossScaling=PrevLossScaling OutGoodSteps=InGoodSteps OutBadSteps=InBadSteps",
    grad=None,
    infer=infer_inplace,
)
def update_loss_scaling(
    grads: list[Tensor],
    found_infinite: Tensor,
    scaling: Tensor,
    good_steps: Tensor,
    bad_steps: Tensor,
    *,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    stop_update: bool = False,
) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    """Zero the gradients of a bad step; adapt the scale to the run of bad or good steps."""
    overflow = bool(found_infinite.item())
    if overflow:
        torch_private.foreach_zero_(grads)
    if not stop_update:
        follow_overflow(
            scaling,
            good_steps,
            bad_steps,
            overflow=overflow,
            incr_every_n_steps=incr_every_n_steps,
            decr_every_n_nan_or_inf=decr_every_n_nan_or_inf,
            incr_ratio=incr_ratio,
            decr_ratio=decr_ratio,
        )
    return grads, scaling, good_steps, bad_steps
