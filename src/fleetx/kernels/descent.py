"""Updates of parameters: sgd, momentum, the proximal ones, dpsgd; helpers for all.

Every function updates its tensors in place. The formulas are Paddle 1.8.5's; if 2.x has a
different one, an argument or setting of 2.x selects it. `regularization_coeff` adds L2 decay to the
gradient; the lowering of programs folds decay ops into it.
On the CPU torch's fused kernels read and write each tensor once, which is several times faster than
a chain of elementwise calls; they ignore strides, so other layouts use the elementwise path.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fleetx import torch_private
from fleetx.kernels.row_gradients import add_scaled_
from fleetx.kernels.update_rule import Row, fused_rule, update_rule


@functools.lru_cache(maxsize=1024)
def single(value: float) -> float:
    """Return a number as Paddle stores it, in single precision.

    This matters if the formula uses 1 - value: for 0.999 it differs by 1e-5.
    """
    return struct.unpack("f", struct.pack("f", value))[0]


def scalar(value: Tensor) -> Any:
    """Return a one-element tensor as a number if reading it is free, else unchanged."""
    return value.item() if value.is_cpu else value


def fusible(*groups: Sequence[Tensor]) -> bool:
    """Return whether torch's fused CPU kernels accept these: all contiguous and of one type."""
    first = groups[0][0]
    if not first.is_cpu:
        return False
    dtype = first.dtype
    for group in groups:  # plain loops, since this runs in every step
        for tensor in group:
            if not tensor.is_contiguous() or tensor.dtype is not dtype:
                return False
    return True


def by_learning_rate(rows: Sequence[Row], index: int) -> list[tuple[Tensor, Sequence[Row]]]:
    """Group argument tuples by their learning rate tensor."""
    rate = rows[0][index]
    for row in rows:
        if row[index] is not rate:
            break
    else:
        return [(rate, rows)]
    groups: dict[int, tuple[Tensor, list[Row]]] = {}
    for row in rows:
        groups.setdefault(id(row[index]), (row[index], []))[1].append(row)
    return [(shared, members) for shared, members in groups.values()]


_kernel_sgd = functools.partial(
    torch_private.fused_sgd_, dampening=0.0, maximize=False, is_first_step=False
)


# -- sgd -------------------------------------------------------------------------------------------
def _sgd_fused(rows: Sequence[Row], *, regularization_coeff: float = 0.0) -> list[Any]:
    for rate, group in by_learning_rate(rows, 1):
        params, _, grads = zip(*group, strict=True)
        if fusible(params, grads):
            _kernel_sgd(
                params,
                grads,
                (),
                lr=rate.item(),
                momentum=0.0,
                weight_decay=regularization_coeff,
                nesterov=False,
            )
        else:
            for row in group:
                sgd(*row, regularization_coeff=regularization_coeff)
    return [row[0] for row in rows]


@update_rule(
    "sgd",
    takes="Param LearningRate Grad",
    changes={"ParamOut": "Param"},
    fused=_sgd_fused,
    takes_rows=True,
)
def sgd(param: Tensor, rate: Tensor, grad: Tensor, *, regularization_coeff: float = 0.0) -> Tensor:
    """p -= lr * g."""
    if grad.is_sparse:  # decay is never folded into it
        return add_scaled_(param, grad, -rate.item())
    if regularization_coeff:
        grad = grad.add(param, alpha=regularization_coeff)
    if param.is_cpu:
        return param.add_(grad, alpha=-rate.item())
    return param.sub_(grad * rate)


# -- momentum --------------------------------------------------------------------------------------
@fused_rule(
    "momentum",
    takes="Param Grad Velocity LearningRate",
    settings={"mu": 0.0, "use_nesterov": False},
    changes={"ParamOut": "Param", "VelocityOut": "Velocity"},
)
def momentum(
    rows: Sequence[Row],
    *,
    mu: float,
    use_nesterov: bool,
    regularization_method: str = "",
    regularization_coeff: float = 0.0,
    rescale_grad: float = 1.0,
) -> list[Any]:
    """v = mu * v + g; p -= lr * v, or lr * (g + mu * v) with Nesterov."""
    decay = regularization_coeff if regularization_method == "l2_decay" else 0.0
    for rate, group in by_learning_rate(rows, 3):
        params, grads, velocities, _ = zip(*group, strict=True)
        # The kernel requires velocities only if they are used.
        if mu and rescale_grad == 1.0 and fusible(params, grads, velocities):
            _kernel_sgd(
                params,
                grads,
                velocities,
                lr=rate.item(),
                momentum=mu,
                weight_decay=decay,
                nesterov=use_nesterov,
            )
        else:
            for row in group:
                _momentum_by_steps(row, mu, use_nesterov, decay, rescale_grad)
    return [(row[0], row[2]) for row in rows]


def _momentum_by_steps(
    row: Row, mu: float, use_nesterov: bool, decay: float, rescale_grad: float
) -> None:
    param, grad, velocity, rate = row
    if rescale_grad != 1.0:
        grad = grad * rescale_grad
    if decay:
        grad = grad.add(param, alpha=decay)
    velocity.mul_(mu).add_(grad)
    step = grad.add(velocity, alpha=mu) if use_nesterov else velocity
    param.sub_(step * scalar(rate))


# -- proximal and private --------------------------------------------------------------------------
def _shrink(value: Tensor, lr: Any, l1: float, l2: float) -> Tensor:
    size = value.abs().sub_(lr * l1).clamp_(min=0.0)
    return value.sign().mul_(size).div_(1 + lr * l2)


@update_rule(
    "proximal_gd",
    takes="Param Grad LearningRate",
    settings={"l1": 0.0, "l2": 0.0},
    changes={"ParamOut": "Param"},
)
def proximal_gd(param: Tensor, grad: Tensor, rate: Tensor, *, l1: float, l2: float) -> Tensor:
    """Apply gradient descent, then the proximal step of the L1 and L2 penalties."""
    lr = scalar(rate)
    return param.copy_(_shrink(param - grad * lr, lr, l1, l2))


@update_rule(
    "proximal_adagrad",
    takes="Param Moment Grad LearningRate",
    settings={"l1": 0.0, "l2": 0.0},
    changes={"ParamOut": "Param", "MomentOut": "Moment"},
)
def proximal_adagrad(
    param: Tensor, moment: Tensor, grad: Tensor, rate: Tensor, *, l1: float, l2: float
) -> tuple[Tensor, Tensor]:
    """Apply Adagrad, then the proximal step of the L1 and L2 penalties."""
    lr = scalar(rate)
    moment.addcmul_(grad, grad)
    return param.copy_(_shrink(param - grad * lr / moment.sqrt(), lr, l1, l2)), moment


@update_rule(
    "dpsgd",
    takes="Param Grad LearningRate",
    settings={"clip": 10.0, "batch_size": 16.0, "sigma": 1.0, "seed": 0},
    changes={"ParamOut": "Param"},
    random=True,
)
def dpsgd(
    param: Tensor,
    grad: Tensor,
    rate: Tensor,
    *,
    clip: float,
    batch_size: float,
    sigma: float,
    seed: int,
) -> Tensor:
    """Apply differentially private descent: clip the gradient by norm, add noise to it."""
    generator = torch.Generator(param.device).manual_seed(seed) if seed else None
    noise = torch.empty_like(grad).normal_(0.0, 1.0, generator=generator).mul_(sigma / batch_size)
    scale = (grad.norm() / clip).clamp_(min=1.0)
    return param.sub_((grad / scale + noise).mul_(scalar(rate)))
