"""LocalSGD: the outer step from one average to the next, and the interval that follows the loss.

The two formulas behind the ops are what training of PyTorch modules calls too.
"""

from __future__ import annotations

import math

from torch import Tensor

from fleetx.static.op_registry import op
from fleetx.static.ops.optimizer_ops import infer_inplace


def take_outer_step(
    difference: Tensor, velocity: Tensor, *, momentum: float, rate: float, nesterov: bool
) -> Tensor:
    """Return what to take off the snapshot; the velocity is updated in place.

    A step of SGD whose gradient is snapshot minus average.
    """
    velocity.mul_(momentum).add_(difference)
    step = difference.add(velocity, alpha=momentum) if nesterov else velocity
    return step * rate


def next_interval(
    init_k_steps: int,
    first: tuple[float, float],
    now: tuple[float, float],
    before: int,
    most_steps: int,
) -> int:
    """Return the interval for (loss, rate) now and in step 1; `before` if there is no answer.

    ceil(sqrt(rate_0 * loss / (rate * loss_0) * init_k_steps)), at least 1 and at most `most_steps`.
    There is no answer if the loss has changed its sign or is not a number.
    """
    (loss_0, rate_0), (loss, rate) = first, now
    above, below = rate_0 * loss, rate * loss_0
    if below == 0:
        return most_steps if above > 0 else before
    square = above / below * init_k_steps
    if math.isnan(square) or square < 0:
        return before
    return max(1, math.ceil(math.sqrt(min(square, most_steps**2))))


@op(
    "outer_step",
    inputs="X Velocity",
    outputs="Out VelocityOut",
    attrs={"momentum": 0.0, "rate": 1.0, "nesterov": False},
    grad=None,
    inplace={"VelocityOut": "Velocity"},
)
def outer_step(
    difference: Tensor, velocity: Tensor, *, momentum: float, rate: float, nesterov: bool
) -> tuple[Tensor, Tensor]:
    """Return what to take off the snapshot, and the velocity."""
    change = take_outer_step(difference, velocity, momentum=momentum, rate=rate, nesterov=nesterov)
    return change, velocity


@op(
    "adaptive_interval",
    inputs="Loss Rate FirstLoss FirstRate KSteps",
    outputs="KStepsOut",
    attrs={"init_k_steps": 1, "most_steps": 16},
    grad=None,
    infer=infer_inplace,
    inplace={"KStepsOut": "KSteps"},
)
def adaptive_interval(
    loss: Tensor,
    rate: Tensor,
    first_loss: Tensor,
    first_rate: Tensor,
    k_steps: Tensor,
    *,
    init_k_steps: int,
    most_steps: int,
) -> Tensor:
    """Set the interval until the next average."""
    first = first_loss.item(), first_rate.item()
    now = loss.item(), rate.item()
    return k_steps.fill_(next_interval(init_k_steps, first, now, int(k_steps.item()), most_steps))
