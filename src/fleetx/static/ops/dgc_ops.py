"""Deep gradient compression: dgc, which exchanges gradients, and dgc_momentum, which updates.

Each worker adds its gradient to a velocity u, and the velocity to its residual v; the largest
entries of v are sent, and both are set to zero there (factor masking). Before the first compressed
step, whole gradients are averaged and u is the velocity of ordinary momentum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.comm.top_k import gather_entries
from fleetx.comm.world import all_reduce_mean
from fleetx.kernels.compression import SparsitySchedule, add_entries, compress, entries
from fleetx.kernels.descent import momentum
from fleetx.kernels.gradients import clip_locally, decay
from fleetx.static.graph.op_registry import effect_op, op
from fleetx.static.ops.optimizer_ops import infer_inplace, infer_update


@effect_op(
    "dgc",
    inputs="U*? V*? Param*? Grad*? Dense*? current_step LearningRate*?",
    outputs="U_out*?=U V_out*?=V Grad_out*? Dense_out*?",
    infer=infer_inplace,
)
def dgc(
    us: list[Tensor],
    vs: list[Tensor],
    params: list[Tensor],
    grads: list[Tensor],
    dense: list[Tensor],
    current_step: Tensor,
    rates: list[Tensor],
    *,
    m: float = 0.9,
    use_nesterov: bool = True,
    sparsity: list[float] = [0.999],
    rampup_begin_step: float = 0.0,
    rampup_step: float = 1.0,
    regular_coeff: list[float] = [],
    regular_type: list[int] = [],
    local_clip_norm: float = 0.0,
    keep_rate: bool = False,  # LearningRate has one for each of Grad, and is in Grad_out
) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """Exchange the gradients of a program: large ones by their largest entries, `Dense` whole."""
    schedule = SparsitySchedule(
        begin=int(rampup_begin_step), ramp=int(rampup_step), sparsities=tuple(sparsity)
    )
    step = int(current_step.item())
    share = schedule.at(step)
    if local_clip_norm and step >= schedule.begin:
        grads = [clip_locally(g, local_clip_norm) for g in grads]
    if any(regular_type):
        settings = zip(grads, params, regular_type, regular_coeff, strict=True)
        grads = [decay(g, p, kind, coeff) for g, p, kind, coeff in settings]
    whole = all_reduce_mean([*dense, *([] if share else grads)])
    if not share:
        return us, vs, whole[len(dense) :], whole[: len(dense)]
    if not grads:
        return us, vs, grads, whole
    factors = [float(rate) for rate in rates] if keep_rate else [1.0] * len(grads)
    sent = [
        compress(u, v, g, entries(g.numel(), share), mu=m, nesterov=use_nesterov, rate=rate)
        for u, v, g, rate in zip(us, vs, grads, factors, strict=True)
    ]
    received = zip(grads, gather_entries(sent), strict=True)
    means = [add_entries(torch.zeros_like(g).view(-1), each).view_as(g) for g, each in received]
    return us, vs, means, whole


@op(
    "dgc_momentum",
    inputs="Param Grad Velocity LearningRate current_step nranks?",
    outputs="ParamOut=Param VelocityOut=Velocity Grad_out?=Grad",
    grad=None,
    infer=infer_update,
)
def dgc_momentum(
    param: Tensor,
    grad: Tensor,
    velocity: Tensor,
    rate: Tensor,
    current_step: Tensor,
    nranks: Tensor | None,
    *,
    mu: float = 0.0,
    use_nesterov: bool = False,
    rampup_begin_step: float = -1.0,
    sparsity: list[float] = [0.999],
    rampup_step: float = 1.0,
    keep_rate: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Update by the exchanged gradient, which contains the momentum: p -= lr * g; with `keep_rate`
    it contains the learning rate too.

    As long as whole gradients are exchanged, this is ordinary momentum. In Paddle's programs the
    gradient is the sum over `nranks` workers, and the op divides it.
    """
    if nranks is not None:
        if rampup_begin_step < 0:
            return param, velocity, grad
        if nranks.item() <= 1:
            raise ValueError(
                f"nranks of dgc_momentum is {nranks.item():g}, but DGC needs at least 2 workers."
            )
        grad.div_(nranks.item())
    schedule = SparsitySchedule(
        begin=max(0, int(rampup_begin_step)), ramp=int(rampup_step), sparsities=tuple(sparsity)
    )
    if schedule.at(int(current_step.item())):
        param.sub_(grad if keep_rate else grad * rate)
    else:
        momentum(param, grad, velocity, rate, mu=mu, use_nesterov=use_nesterov)
    return param, velocity, grad
