"""Loss scaling: the check for finite gradients, unscaling, and the update of the scale."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fleetx import torch_private


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Return whether no tensor has an infinite or NaN element."""
    if not tensors:
        return True
    dense = [torch_private.sparse_values(t) if t.is_sparse else t for t in tensors]
    # A single kernel if launches dominate the cost, the cheapest one if memory does.
    totals = (
        torch_private.foreach_norm(dense)
        if dense[0].device.type != "cpu"
        else [t.sum() for t in dense]
    )
    if bool(torch.stack([t.to(torch.float32) for t in totals]).isfinite().all()):
        return True
    # A sum of large finite numbers can overflow too, so check each element in this case.
    return all(bool(t.isfinite().all()) for t in dense)


def unscale_(gradients: list[Tensor], scale: Tensor) -> None:
    """Unscale gradients in place: multiply them by the reciprocal of the scale."""
    torch_private.foreach_mul_(list(gradients), scale.reciprocal().reshape(()))


def unscaled(gradient: Tensor, scale: float) -> Tensor:
    """Return an unscaled gradient, bitwise equal to that of `unscale_`."""
    return gradient * (1.0 / scale)


def follow_overflow(
    scaling: Tensor,
    good_steps: Tensor,
    bad_steps: Tensor,
    *,
    overflow: bool,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int,
    incr_ratio: float,
    decr_ratio: float,
) -> None:
    """Adapt the scale in place to the number of consecutive good or bad steps."""
    if overflow:
        good_steps.zero_()
        bad_steps.add_(1)
        if bad_steps.item() >= decr_every_n_nan_or_inf:
            scaling.mul_(decr_ratio).clamp_(min=1.0)
            bad_steps.zero_()
        return
    bad_steps.zero_()
    good_steps.add_(1)
    if good_steps.item() >= incr_every_n_steps:
        raised = scaling * incr_ratio
        scaling.copy_(torch.where(raised.isfinite(), raised, scaling))
        good_steps.zero_()
