"""LocalSGD: the outer step between two averages, and the interval that adapts to the loss."""

from __future__ import annotations

from torch import Tensor

from fleetx.kernels.local_sgd import next_interval, take_outer_step
from fleetx.static.graph.op_registry import op
from fleetx.static.ops.optimizer_ops import infer_inplace


@op(
    "outer_step",
    inputs="X Velocity",
    outputs="Out VelocityOut=Velocity",
    grad=None,
)
def outer_step(
    difference: Tensor,
    velocity: Tensor,
    *,
    momentum: float = 0.0,
    rate: float = 1.0,
    nesterov: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the change to subtract from the snapshot, and the velocity."""
    change = take_outer_step(difference, velocity, momentum=momentum, rate=rate, nesterov=nesterov)
    return change, velocity


@op(
    "adaptive_interval",
    inputs="Loss Rate FirstLoss FirstRate KSteps",
    outputs="KStepsOut=KSteps",
    grad=None,
    infer=infer_inplace,
)
def adaptive_interval(
    loss: Tensor,
    rate: Tensor,
    first_loss: Tensor,
    first_rate: Tensor,
    k_steps: Tensor,
    *,
    init_k_steps: int = 1,
    most_steps: int = 16,
) -> Tensor:
    """Set the interval until the next average."""
    first = first_loss.item(), first_rate.item()
    now = loss.item(), rate.item()
    return k_steps.fill_(next_interval(init_k_steps, first, now, int(k_steps.item()), most_steps))
