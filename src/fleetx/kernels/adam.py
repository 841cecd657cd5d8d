"""Adam and its relatives: adam, adamw, adamax.

`Beta1Pow` and `Beta2Pow` hold the powers of the betas for the current step; adam and adamw multiply
them for the next one. Paddle 1.8.5 and 2.x differ in the formula; that of 2.x is used if the
setting that 2.x introduced is given (`use_global_beta_pow`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fleetx import torch_private
from fleetx.kernels.descent import by_learning_rate, fusible, scalar, single
from fleetx.kernels.row_gradients import update_rows
from fleetx.kernels.update_rule import Row, fused_rule, update_rule

# A step count for which torch's own bias correction vanishes; Paddle's is folded into the rate.
_LATE = torch.full((), math.inf)
_TAKES = "Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow Beta1Tensor? Beta2Tensor?"
MOMENTS_CHANGE = {
    "ParamOut": "Param",
    "Moment1Out": "Moment1",
    "Moment2Out": "Moment2",
    "Beta1PowOut": "Beta1Pow",
    "Beta2PowOut": "Beta2Pow",
}
_SETTINGS = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "lazy_mode": False}


def same_powers(rows: Sequence[Row]) -> list[tuple[float, float, list[Row]]]:
    """Group argument tuples by the values of their beta powers, which are nearly always equal."""
    count = len(rows)
    values = torch.cat([r[5] for r in rows] + [r[6] for r in rows]).tolist()
    if values.count(values[0]) >= count and values.count(values[count]) >= count:
        return [(values[0], values[count], list(rows))]
    groups: dict[tuple[float, float], list[Row]] = {}
    for row, first, second in zip(rows, values[:count], values[count:], strict=True):
        groups.setdefault((first, second), []).append(row)
    return [(*powers, group) for powers, group in groups.items()]


class BetaPower:
    """The powers of a beta, rounded as a float32 variable that each step multiplies by it."""

    def __init__(self, beta: float) -> None:
        self._beta = single(beta)
        self._count, self._value = 0, 1.0

    def at(self, count: int) -> float:
        """Return the power for step `count`; consecutive steps are cheap."""
        if count < self._count:
            self._count, self._value = 0, 1.0
        while self._count < count:
            value = struct.unpack("f", struct.pack("f", self._value * self._beta))[0]
            if value == self._value:  # it has underflowed and does not change any more
                self._count = count
                break
            self._count, self._value = self._count + 1, value
        return self._value


def _adam_rows(
    rows: Sequence[Row],
    beta1: float,
    beta2: float,
    epsilon: float,
    scale_epsilon: bool,
    decay: float = 0.0,
    lr_ratio: float = 1.0,
    l2: float = 0.0,
    advance_first: bool = False,
) -> list[Any]:
    """Update parameters that share betas.

    `decay` shrinks them by lr * decay first; `l2` is decay added to the gradient. The powers of the
    betas are multiplied for the next step, or before this one if `advance_first` is set.
    """
    beta1, beta2 = single(beta1), single(beta2)
    for rate, group in by_learning_rate(rows, 2):
        if advance_first:
            _advance(group, beta1, beta2)
        columns = list(zip(*group, strict=True))
        one_beta = columns[7][0] is None and columns[8][0] is None
        if not (one_beta and fusible(columns[0], columns[1], columns[3], columns[4])):
            for row in group:
                _adam_by_steps(row, beta1, beta2, epsilon, scale_epsilon, decay, lr_ratio, l2)
            if not advance_first:
                _advance(group, beta1, beta2)
            continue
        lr = rate.item() * lr_ratio
        for power1, power2, members in same_powers(group):
            root = math.sqrt(1 - power2)
            step = lr * root / (1 - power1)
            params, grads, _, moments1, moments2, *_ = zip(*members, strict=True)
            kernel = torch_private.fused_adamw_ if decay and step else torch_private.fused_adam_
            kernel(
                params,
                grads,
                moments1,
                moments2,
                [],
                [_LATE] * len(members),
                lr=step,
                beta1=beta1,
                beta2=beta2,
                weight_decay=decay * lr / step if decay and step else l2,
                eps=epsilon * root if scale_epsilon else epsilon,
                amsgrad=False,
                maximize=False,
            )
        if not advance_first:
            _advance(group, beta1, beta2)
    return [(r[0], r[3], r[4], r[5], r[6]) for r in rows]


def _advance(rows: Sequence[Row], beta1: float, beta2: float) -> None:
    """Multiply the powers of the betas."""
    if rows[0][7] is None and rows[0][8] is None:
        torch_private.foreach_mul_([row[5] for row in rows], beta1)
        torch_private.foreach_mul_([row[6] for row in rows], beta2)
        return
    for row in rows:
        row[5].mul_(beta1 if row[7] is None else scalar(row[7]))
        row[6].mul_(beta2 if row[8] is None else scalar(row[8]))


def _adam_of_rows(row: Row, lazy: bool, **settings: Any) -> Any:
    """Update with a sparse gradient; if `lazy`, only its rows.

    For such gradients Paddle's CPU kernels use the powers after multiplying them, in 1.8.5 and 2.x.
    """
    param, grad, rate, moment1, moment2, *rest = row
    settings["advance_first"] = True
    if not lazy:
        return _adam_rows([(param, grad.to_dense(), *row[2:])], **settings)[0]

    def update(parts: list[Tensor], values: Tensor) -> None:
        _adam_rows([(parts[0], values, rate, parts[1], parts[2], *rest)], **settings)

    update_rows((param, moment1, moment2), grad, update)
    return param, moment1, moment2, rest[0], rest[1]


def _adam_by_steps(
    row: Row,
    beta1: Any,
    beta2: Any,
    epsilon: float,
    scale_epsilon: bool,
    decay: float,
    lr_ratio: float,
    l2: float,
) -> None:
    param, grad, rate, moment1, moment2, power1, power2, tensor1, tensor2 = row
    if l2:
        grad = grad.add(param, alpha=l2)
    beta1 = beta1 if tensor1 is None else scalar(tensor1)
    beta2 = beta2 if tensor2 is None else scalar(tensor2)
    rate = rate * lr_ratio
    if decay:
        param.mul_(1 - rate * decay)
    moment1.mul_(beta1).add_(grad * (1 - beta1))
    moment2.mul_(beta2).add_(grad * grad * (1 - beta2))
    root = (1 - power2).sqrt_()
    denominator = moment2.sqrt().add_(root * epsilon if scale_epsilon else epsilon)
    param.sub_(moment1.div(denominator).mul_(rate * root / (1 - power1)))


# -- adam ------------------------------------------------------------------------------------------
def _adam_of(rows: Sequence[Row], lazy_mode: bool, **settings: Any) -> list[Any]:
    """Update parameters, whose gradients may be sparse."""
    if rows[0][1].is_sparse:
        return [_adam_of_rows(row, lazy_mode, **settings) for row in rows]
    return _adam_rows(rows, **settings)


@fused_rule("adam", takes=_TAKES, changes=MOMENTS_CHANGE, settings=_SETTINGS, takes_rows=True)
def adam(
    rows: Sequence[Row],
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    lazy_mode: bool = False,
    use_global_beta_pow: bool | None = None,
    regularization_coeff: float = 0.0,
) -> list[Any]:
    """p -= lr_t * m / (sqrt(v) + eps), lr_t = lr * sqrt(1 - beta2^t) / (1 - beta1^t).

    2.x multiplies eps by sqrt(1 - beta2^t) as well.
    """
    return _adam_of(
        rows,
        lazy_mode,
        beta1=beta1,
        beta2=beta2,
        epsilon=epsilon,
        scale_epsilon=use_global_beta_pow is not None,
        l2=regularization_coeff,
    )


@fused_rule(
    "adamw",
    takes=_TAKES,
    changes=MOMENTS_CHANGE,
    settings={**_SETTINGS, "lr_ratio": 1.0, "coeff": 0.01, "with_decay": False},
    takes_rows=True,
)
def adamw(
    rows: Sequence[Row],
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    coeff: float,
    with_decay: bool,
    lr_ratio: float,
    lazy_mode: bool = False,
) -> list[Any]:
    """Shrink the parameter by lr * coeff, then apply Adam; `lr_ratio` scales the learning rate."""
    return _adam_of(
        rows,
        lazy_mode,
        beta1=beta1,
        beta2=beta2,
        epsilon=epsilon,
        scale_epsilon=True,
        decay=coeff if with_decay else 0.0,
        lr_ratio=lr_ratio,
    )


# -- adamax ----------------------------------------------------------------------------------------
@update_rule(
    "adamax",
    takes="Param Grad LearningRate Moment InfNorm Beta1Pow",
    settings={"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
    changes={"ParamOut": "Param", "MomentOut": "Moment", "InfNormOut": "InfNorm"},
)
def adamax(
    param: Tensor,
    grad: Tensor,
    rate: Tensor,
    moment: Tensor,
    inf_norm: Tensor,
    power: Tensor,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Apply Adam with the infinity norm; a separate scale op multiplies `Beta1Pow`."""
    beta1, beta2 = single(beta1), single(beta2)
    moment.mul_(beta1).add_(grad, alpha=1 - beta1)
    torch.maximum(grad.abs(), inf_norm.mul_(beta2).add_(epsilon), out=inf_norm)
    param.sub_(moment.div(inf_norm).mul_(rate / (1 - power)))
    return param, moment, inf_norm
