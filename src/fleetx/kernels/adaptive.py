"""Updates with a rate per element: adagrad, decayed_adagrad, rmsprop, adadelta, ftrl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fleetx import torch_private
from fleetx.kernels.descent import by_learning_rate, fusible, scalar, single
from fleetx.kernels.row_gradients import update_rows
from fleetx.kernels.update_rule import Row, fused_rule, update_rule

_ONE = torch.ones(())


@fused_rule(
    "adagrad",
    takes="Param Grad Moment LearningRate",
    settings={"epsilon": 1e-6},
    changes={"ParamOut": "Param", "MomentOut": "Moment"},
    takes_rows=True,
)
def adagrad(rows: Sequence[Row], *, epsilon: float, regularization_coeff: float = 0.0) -> list[Any]:
    """m += g * g; p -= lr * g / (sqrt(m) + eps)."""
    if rows[0][1].is_sparse:
        return [_adagrad_of_rows(*row, epsilon=epsilon) for row in rows]
    kernel = torch_private.fused_adagrad_
    for rate, group in by_learning_rate(rows, 3):
        params, grads, moments, _ = zip(*group, strict=True)
        if kernel is not None and fusible(params, grads, moments):
            kernel(
                params,
                grads,
                moments,
                [_ONE] * len(group),  # the step count matters only with lr_decay
                lr=rate.item(),
                lr_decay=0.0,
                weight_decay=regularization_coeff,
                eps=epsilon,
                maximize=False,
            )
        else:
            for param, grad, moment, _ in group:
                if regularization_coeff:
                    grad = grad.add(param, alpha=regularization_coeff)
                moment.addcmul_(grad, grad)
                param.sub_(grad.div(moment.sqrt().add_(epsilon)).mul_(scalar(rate)))
    return [(row[0], row[2]) for row in rows]


def _adagrad_of_rows(
    param: Tensor, grad: Tensor, moment: Tensor, rate: Tensor, *, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Update with a sparse gradient: rows without gradient do not change."""
    update_rows(
        (param, moment),
        grad,
        lambda parts, values: adagrad(parts[0], values, parts[1], rate, epsilon=epsilon),
    )
    return param, moment


@update_rule(
    "decayed_adagrad",
    takes="Param Grad Moment LearningRate",
    settings={"decay": 0.95, "epsilon": 1e-6},
    changes={"ParamOut": "Param", "MomentOut": "Moment"},
)
def decayed_adagrad(
    param: Tensor, grad: Tensor, moment: Tensor, rate: Tensor, *, decay: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """m = decay * m + (1 - decay) * g * g; p -= lr * g / (sqrt(m) + eps)."""
    decay = single(decay)
    moment.mul_(decay).addcmul_(grad, grad, value=1 - decay)
    step = grad.div(moment.sqrt().add_(epsilon))
    return param.sub_(step.mul_(scalar(rate))), moment


@update_rule(
    "rmsprop",
    takes="Param MeanSquare MeanGrad? LearningRate Grad Moment",
    settings={"epsilon": 1e-10, "decay": 0.9, "momentum": 0.0, "centered": False},
    changes={
        "ParamOut": "Param",
        "MomentOut": "Moment",
        "MeanSquareOut": "MeanSquare",
        "MeanGradOut": "MeanGrad",
    },
)
def rmsprop(
    param: Tensor,
    mean_square: Tensor,
    mean_grad: Tensor | None,
    rate: Tensor,
    grad: Tensor,
    moment: Tensor,
    *,
    epsilon: float,
    decay: float,
    momentum: float,
    centered: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Divide by the root of the running mean square (centered: variance), with epsilon inside."""
    decay = single(decay)
    mean_square.mul_(decay).addcmul_(grad, grad, value=1 - decay)
    if centered:
        if mean_grad is None:
            raise ValueError("op 'rmsprop' with centered=True needs input 'MeanGrad'.")
        mean_grad.mul_(decay).add_(grad, alpha=1 - decay)
        root = mean_square.addcmul(mean_grad, mean_grad, value=-1).add_(epsilon).sqrt_()
    else:
        root = mean_square.add(epsilon).sqrt_()
    moment.mul_(momentum).add_(grad.div(root).mul_(scalar(rate)))
    return param.sub_(moment), moment, mean_square, mean_grad


@update_rule(
    "adadelta",
    takes="Param Grad AvgSquaredGrad AvgSquaredUpdate LearningRate?",
    settings={"rho": 0.95, "epsilon": 1e-6},
    changes={
        "ParamOut": "Param",
        "AvgSquaredGradOut": "AvgSquaredGrad",
        "AvgSquaredUpdateOut": "AvgSquaredUpdate",
    },
)
def adadelta(
    param: Tensor,
    grad: Tensor,
    mean_square: Tensor,
    mean_update: Tensor,
    rate: Tensor | None,
    *,
    rho: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scale by the ratio of running updates to running gradients; 1.x has no learning rate.

    This is the documented formula, and that of 2.x. Paddle 1.8.5 itself reads the running updates
    after it has overwritten them.
    """
    rho = single(rho)
    mean_square.mul_(rho).addcmul_(grad, grad, value=1 - rho)
    step = mean_update.add(epsilon).div_(mean_square.add(epsilon)).sqrt_().mul_(grad)
    mean_update.mul_(rho).addcmul_(step, step, value=1 - rho)
    if rate is not None:
        step.mul_(scalar(rate))
    return param.sub_(step), mean_square, mean_update


@update_rule(
    "ftrl",
    takes="Param SquaredAccumulator LinearAccumulator Grad LearningRate",
    settings={"l1": 0.0, "l2": 0.0, "lr_power": -0.5},
    changes={
        "ParamOut": "Param",
        "SquaredAccumOut": "SquaredAccumulator",
        "LinearAccumOut": "LinearAccumulator",
    },
)
def ftrl(
    param: Tensor,
    squared: Tensor,
    linear: Tensor,
    grad: Tensor,
    rate: Tensor,
    *,
    l1: float,
    l2: float,
    lr_power: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Apply FTRL (follow the regularized leader)."""
    # Paddle adds a small constant to both, so that a coefficient of zero does not divide by zero.
    l1, l2, lr = l1 + 1e-10, l2 + 1e-10, scalar(rate)
    old = squared.sqrt() if lr_power == -0.5 else squared.pow(-lr_power)
    squared.addcmul_(grad, grad)
    new = squared.sqrt() if lr_power == -0.5 else squared.pow(-lr_power)
    linear.add_(grad).sub_((new - old).div_(lr).mul_(param))
    pull = linear.sign().mul_(l1).sub_(linear)
    value = pull.div_(new.div_(lr).add_(2 * l2))
    param.copy_(torch.where(linear.abs() > l1, value, torch.zeros_like(value)))
    return param, squared, linear
