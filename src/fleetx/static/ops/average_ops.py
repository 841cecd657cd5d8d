"""average_accumulates: running sums of a parameter, from which ModelAverage takes the mean."""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import Attr, Long, op
from fleetx.static.ops.optimizer_ops import infer_inplace

_STATE = ("sum_1", "sum_2", "sum_3", "num_accumulates", "old_num_accumulates", "num_updates")
# Paddle moves the newest sum into the second one after so many updates, to keep precision.
_MAX_ACCUMULATES = 16384


@op(
    "average_accumulates",
    inputs=" ".join(["param", *(f"in_{name}" for name in _STATE)]),
    outputs=" ".join(f"out_{name}=in_{name}" for name in _STATE),
    attrs={"max_average_window": Attr("LONG", 2**63 - 1)},
    grad=None,
    infer=infer_inplace,
)
def average_accumulates(
    param: Tensor,
    sum_1: Tensor,
    sum_2: Tensor,
    sum_3: Tensor,
    accumulates: Tensor,
    old_accumulates: Tensor,
    updates: Tensor,
    *,
    average_window: float = 0.0,
    max_average_window: int,
    min_average_window: Long = 10000,
) -> tuple[Tensor, ...]:
    """Add a parameter to the running sums; close the window when it is long enough."""
    updates.add_(1)
    accumulates.add_(1)
    sum_1.add_(param)
    done, count = updates.item(), accumulates.item()
    if done % _MAX_ACCUMULATES == 0:
        sum_2.add_(sum_1)
        sum_1.zero_()
    window = min(max_average_window, int(done * average_window))
    if count >= max(min_average_window, window):
        torch.add(sum_1, sum_2, out=sum_3)
        sum_1.zero_()
        sum_2.zero_()
        old_accumulates.copy_(accumulates)
        accumulates.zero_()
    return sum_1, sum_2, sum_3, accumulates, old_accumulates, updates
