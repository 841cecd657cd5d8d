"""Loss scaling: check_finite_and_unscale and update_loss_scaling."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.dtypes import VarType
from fleetx.static.op_registry import op
from fleetx.static.ops.optimizer_ops import infer_inplace


def _infer_check(op: Any, block: Any) -> None:
    infer_inplace(op, block)
    for name in op.output("FoundInfinite"):
        var = block._find_var_recursive(name)
        if var is not None:
            var._set_inferred((1,), VarType.BOOL)


@op(
    "check_finite_and_unscale",
    inputs="X* Scale",
    outputs="Out* FoundInfinite",
    grad=None,
    infer=_infer_check,
    inplace={"Out": "X"},
)
def check_finite_and_unscale(grads: list[Tensor], scale: Tensor) -> tuple[list[Tensor], Tensor]:
    """Divide gradients by the loss scale and tell whether any of them is infinite or NaN."""
    torch._foreach_mul_(grads, scale.reciprocal().reshape(()))
    finite = torch.stack([g.isfinite().all() for g in grads]).all()
    return grads, finite.logical_not().reshape(1)


@op(
    "update_loss_scaling",
    inputs="X* FoundInfinite PrevLossScaling InGoodSteps InBadSteps",
    outputs="Out* LossScaling OutGoodSteps OutBadSteps",
    attrs={
        "incr_every_n_steps": 1000,
        "decr_every_n_nan_or_inf": 2,
        "incr_ratio": 2.0,
        "decr_ratio": 0.8,
        "stop_update": False,
    },
    grad=None,
    infer=infer_inplace,
    inplace={
        "Out": "X",
        "LossScaling": "PrevLossScaling",
        "OutGoodSteps": "InGoodSteps",
        "OutBadSteps": "InBadSteps",
    },
)
def update_loss_scaling(
    grads: list[Tensor],
    found_infinite: Tensor,
    scaling: Tensor,
    good_steps: Tensor,
    bad_steps: Tensor,
    *,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int,
    incr_ratio: float,
    decr_ratio: float,
    stop_update: bool,
) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    """Zero the gradients of a bad step; adapt the scale to the run of bad or good steps."""
    overflow = bool(found_infinite.item())
    if overflow:
        torch._foreach_zero_(grads)
    if stop_update:
        return grads, scaling, good_steps, bad_steps
    if overflow:
        good_steps.zero_()
        bad_steps.add_(1)
        if bad_steps.item() >= decr_every_n_nan_or_inf:
            scaling.mul_(decr_ratio).clamp_(min=1.0)
            bad_steps.zero_()
    else:
        bad_steps.zero_()
        good_steps.add_(1)
        if good_steps.item() >= incr_every_n_steps:
            raised = scaling * incr_ratio
            scaling.copy_(torch.where(raised.isfinite(), raised, scaling))
            good_steps.zero_()
    return grads, scaling, good_steps, bad_steps
