"""`train_batch` and `eval_batch` of a distributed model: a whole step in one call, as in Paddle.

A pipeline needs them, because forward and backward of its micro-batches alternate. Every other
model has them too, so that the same script runs on one worker and with other techniques.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from fleetx.comm.divided_tensors import whole
from fleetx.fleet.collective.distributed_optimizer import DistributedOptimizer


def train_batch(
    model: Any,
    data: tuple[Any, Any],
    optimizer: Optimizer,
    lr_scheduler: Any = None,
    scaler: Any = None,
    *,
    loss_fn: Callable[..., Any] | None = None,
) -> torch.Tensor:
    """Train on a batch, and return its loss.

    Args:
        model: what `fleet.distributed_model` returned.
        data: inputs and targets.
        optimizer: what `fleet.distributed_optimizer` returned.
        lr_scheduler: a scheduler to step after the update.
        scaler: must be None; `strategy.amp` scales the loss.
        loss_fn: computes the mean loss of outputs and targets; without it, the module's attribute
            `loss_fn`.
    """
    if not isinstance(optimizer, DistributedOptimizer):
        raise TypeError(
            "train_batch takes the optimizer that fleet.distributed_optimizer returned, not a "
            f"{type(optimizer).__name__}."
        )
    if scaler is not None:
        raise ValueError("train_batch takes no scaler: set strategy.amp = True instead.")
    inputs, targets = _pair(data)
    compute = _loss_of(model.module, loss_fn)
    optimizer.zero_grad()
    model.meet_batch(inputs, targets, compute)
    batches = model.batches
    if batches is None:
        loss = compute(model(inputs), targets)
        loss.backward()
    else:
        loss = batches.train(inputs, targets, compute)
    optimizer.step(loss=loss)
    if lr_scheduler is not None:
        lr_scheduler.step()
    return whole(loss.detach())  # type: ignore[no-any-return]


@torch.no_grad()
def eval_batch(
    model: Any, data: tuple[Any, Any], *, loss_fn: Callable[..., Any] | None = None
) -> torch.Tensor:
    """Return the loss of a batch without training on it."""
    inputs, targets = _pair(data)
    compute = _loss_of(model.module, loss_fn)
    if model.batches is None:
        found: torch.Tensor = whole(compute(model(inputs), targets))
        return found
    return model.batches.evaluate(inputs, targets, compute)  # type: ignore[no-any-return]


def _pair(data: Any) -> tuple[Any, Any]:
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise TypeError(
            "train_batch and eval_batch take a pair of inputs and targets, such as (x, y), not "
            f"{type(data).__name__}."
        )
    return data[0], data[1]


def _loss_of(module: nn.Module, given: Callable[..., Any] | None) -> Callable[..., Any]:
    found = given or getattr(module, "loss_fn", None)
    if found is None:
        raise ValueError(
            "train_batch and eval_batch need to know the loss: pass loss_fn=..., such as "
            "torch.nn.functional.cross_entropy, or set model.loss_fn before "
            "fleet.distributed_model."
        )
    return found  # type: ignore[no-any-return]


BATCH_METHODS: dict[str, Callable[..., Any]] = {
    "train_batch": train_batch,
    "eval_batch": eval_batch,
}
"""The methods by name; a module's own methods take precedence."""
