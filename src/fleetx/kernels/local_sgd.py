"""LocalSGD: the outer step from one average to the next, and the loss-dependent interval."""

from __future__ import annotations

import math

from torch import Tensor


def take_outer_step(
    difference: Tensor, velocity: Tensor, *, momentum: float, rate: float, nesterov: bool
) -> Tensor:
    """Return the value to subtract from the snapshot; update the velocity in place.

    This is a step of SGD whose gradient is snapshot minus average.
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
    """Return the interval for (loss, rate) now and in step 1; `before` if it is undefined.

    ceil(sqrt(rate_0 * loss / (rate * loss_0) * init_k_steps)), at least 1 and at most `most_steps`.
    It is undefined if the loss has changed its sign or is not a number.
    """
    (loss_0, rate_0), (loss, rate) = first, now
    above, below = rate_0 * loss, rate * loss_0
    if below == 0:
        return most_steps if above > 0 else before
    square = above / below * init_k_steps
    if math.isnan(square) or square < 0:
        return before
    return max(1, math.ceil(math.sqrt(min(square, most_steps**2))))
