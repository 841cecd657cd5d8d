"""Updates with a rate per layer, for large batches: lars_momentum and lamb.

`lars_update` and `lamb_update` are the formulas over lists of tensors; the ops and the PyTorch
optimizers of `fleetx.techniques` both call them. LARS has the learning rate inside the velocity, so
that changing it affects new gradients only. The formulas are Paddle 1.8.5's; if 2.x has a different
one, a setting of 2.x (`epsilon`, `always_adapt`) selects it.

https://arxiv.org/abs/1708.03888 (LARS), https://arxiv.org/abs/1904.00962 (LAMB)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fleetx import torch_private
from fleetx.kernels import compiled
from fleetx.kernels.adam import MOMENTS_CHANGE, same_powers
from fleetx.kernels.descent import by_learning_rate, scalar, single
from fleetx.kernels.update_rule import Row, fused_rule

if TYPE_CHECKING or compiled.is_there("fleetx.kernels._layerwise"):
    from fleetx.kernels import _layerwise
else:  # torch's calls need more passes over memory; norms differ in their last bits
    _layerwise = None

Tensors = tuple[Tensor, ...] | list[Tensor]


def _addresses(*columns: Tensors) -> list[tuple[int, ...]] | None:
    """Return element count and addresses for the compiled functions; None if they cannot be used.

    They require float32 CPU tensors, and the same memory order for all tensors of a row.
    """
    if _layerwise is None:
        return None
    rows = []
    for row in zip(*columns, strict=True):
        first = row[0]
        if first.is_contiguous():
            form = torch.contiguous_format
        elif first.dim() == 4 and first.is_contiguous(memory_format=torch.channels_last):
            form = torch.channels_last
        else:
            return None
        for tensor in row:
            is_plain = tensor.dtype is torch.float32 and tensor.is_cpu
            if not is_plain or not tensor.is_contiguous(memory_format=form):
                return None
        rows.append((first.numel(), *[tensor.data_ptr() for tensor in row]))
    return rows


def _note_change(*columns: Tensors) -> None:
    """Notify autograd that tensors were modified outside of torch."""
    for column in columns:
        for tensor in column:  # PyTorch 2.4 takes no list
            torch.autograd.graph.increment_version(tensor)


def _norms(tensors: Tensors) -> Tensor:
    """Return the norms of tensors, in double precision."""
    return torch.stack(torch_private.foreach_norm(tensors)).double()


def _each(values: Tensor) -> list[Any]:
    """Return the elements as numbers if reading them is free, else as tensors."""
    return values.tolist() if values.is_cpu else list(values.float().unbind())


def _held(value: Any, params: Tensors) -> Any:
    """Return a rate or beta in the precision that a program uses for these parameters: single for
    float32."""
    is_single = isinstance(value, float) and params[0].dtype is torch.float32
    return single(value) if is_single else value


# -- LARS ------------------------------------------------------------------------------------------
def lars_update(
    params: Tensors,
    grads: Tensors,
    velocities: Tensors,
    rate: Any,
    *,
    mu: float,
    coeff: float,
    decay: float,
    epsilon: float | None = 0.0,
) -> None:
    """v = mu * v + l * (g + decay * p); p -= v, with a rate l for each parameter.

    l = rate * coeff * |p| / (|g| + decay * |p| + epsilon), or `rate` if a norm is zero or there is
    no decay. Without `epsilon` (1.8.5) l depends on the norms even without decay.
    """
    rate = _held(rate, params)
    adapts = decay > 0 or epsilon is None
    rows = _addresses(params, grads, velocities)
    if rows is not None:
        settings = (rate, mu, coeff, decay, epsilon or 0.0, adapts)
        _layerwise.lars(rows, *settings, torch.get_num_threads())
        _note_change(params, velocities)
        return
    rates = [rate] * len(params)
    if adapts:
        p_norms, g_norms = _norms(params), _norms(grads)
        scaled = rate * coeff * p_norms / (g_norms + decay * p_norms + (epsilon or 0.0))
        plain = torch.as_tensor(rate, dtype=scaled.dtype, device=scaled.device)
        rates = _each(torch.where((p_norms > 0) & (g_norms > 0), scaled, plain))
    steps = (
        torch_private.foreach_add(grads, params, alpha=decay)
        if decay
        else torch_private.foreach_add(grads, 0)
    )
    torch_private.foreach_mul_(steps, rates)
    torch_private.foreach_mul_(velocities, mu)
    torch_private.foreach_add_(velocities, steps)
    torch_private.foreach_sub_(params, velocities)


@fused_rule(
    "lars_momentum",
    takes="Param Grad Velocity LearningRate",
    settings={"mu": 0.0, "lars_coeff": 0.001, "lars_weight_decay": 0.0005},
    changes={"ParamOut": "Param", "VelocityOut": "Velocity"},
)
def lars_momentum(
    rows: Sequence[Row],
    *,
    mu: float,
    lars_coeff: float,
    lars_weight_decay: Any,
    epsilon: float | None = None,
    rescale_grad: float = 1.0,
) -> list[Any]:
    """Apply momentum with a rate scaled by the ratio of the norms of parameter and gradient.

    2.x, which has `epsilon`, does not change the rate of a parameter without decay; 1.8.5 does.
    """
    decay = lars_weight_decay[0] if isinstance(lars_weight_decay, list) else lars_weight_decay
    for rate, group in by_learning_rate(rows, 3):
        params, grads, velocities, _ = zip(*group, strict=True)
        if rescale_grad != 1.0:
            grads = torch_private.foreach_mul(grads, rescale_grad)
        lars_update(
            params,
            grads,
            velocities,
            scalar(rate),
            mu=mu,
            coeff=lars_coeff,
            decay=decay,
            epsilon=epsilon,
        )
    return [(row[0], row[2]) for row in rows]


# -- LAMB ------------------------------------------------------------------------------------------
def lamb_update(
    params: Tensors,
    grads: Tensors,
    moments1: Tensors,
    moments2: Tensors,
    rate: Any,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    decay: float,
    powers: tuple[float, float] = (0.0, 0.0),
    adapt: bool = True,
) -> None:
    """p -= rate * |p| / |r| * r, r = m / (sqrt(v) + epsilon) + decay * p with Adam's m and v.

    `powers` are beta1 ** t and beta2 ** t for the bias correction of the moments; zeros for none.
    The ratio of the norms is 1 if one of them is zero, and always without `adapt`.
    """
    rate, beta1, beta2 = (_held(value, params) for value in (rate, beta1, beta2))
    # (m / c1) / (sqrt(v / c2) + eps), with the corrections moved out of the elementwise part
    root = math.sqrt(1 - powers[1])
    factor, add = root / (1 - powers[0]), epsilon * root
    rows = _addresses(params, grads, moments1, moments2)
    if rows is not None:
        settings = (rate, beta1, beta2, factor, add, decay, adapt)
        _layerwise.lamb(rows, *settings, torch.get_num_threads())
        _note_change(params, moments1, moments2)
        return
    torch_private.foreach_lerp_(moments1, grads, 1 - beta1)
    torch_private.foreach_mul_(moments2, beta2)
    torch_private.foreach_addcmul_(moments2, grads, grads, 1 - beta2)
    divisors = torch_private.foreach_sqrt(moments2)
    torch_private.foreach_add_(divisors, add)
    steps = torch_private.foreach_div(moments1, divisors)
    torch_private.foreach_mul_(steps, factor)
    if decay:
        torch_private.foreach_add_(steps, params, alpha=decay)
    rates = [-rate] * len(params)
    if adapt:
        p_norms, r_norms = _norms(params), _norms(steps)
        usable = (p_norms > 0) & (r_norms > 0)
        rates = _each(-rate * torch.where(usable, p_norms / r_norms, torch.ones_like(p_norms)))
    torch_private.foreach_mul_(steps, rates)
    torch_private.foreach_add_(params, steps)


@fused_rule(
    "lamb",
    takes="Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow",
    settings={"weight_decay": 0.0, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6},
    changes=MOMENTS_CHANGE,
)
def lamb(
    rows: Sequence[Row],
    *,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    always_adapt: bool | None = None,
) -> list[Any]:
    """Apply Adam's direction plus decay, scaled by the ratio of the norms of both.

    1.8.5 has no bias correction. 2.x has it, and scales by the ratio only if there is decay,
    unless `always_adapt` is set.
    """
    beta1, beta2 = single(beta1), single(beta2)
    corrects = always_adapt is not None
    for rate, group in by_learning_rate(rows, 2):
        for *powers, members in same_powers(group) if corrects else [(0.0, 0.0, group)]:
            params, grads, _, moments1, moments2, *_ = zip(*members, strict=True)
            lamb_update(
                params,
                grads,
                moments1,
                moments2,
                scalar(rate),
                beta1=beta1,
                beta2=beta2,
                epsilon=epsilon,
                decay=weight_decay,
                powers=(powers[0], powers[1]),
                adapt=not corrects or bool(always_adapt) or weight_decay > 0,
            )
        if corrects:
            torch_private.foreach_mul_([row[5] for row in group], beta1)
            torch_private.foreach_mul_([row[6] for row in group], beta2)
    return [(r[0], r[3], r[4], r[5], r[6]) for r in rows]
