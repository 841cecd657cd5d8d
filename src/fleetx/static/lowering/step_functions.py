"""Functions that the generated step calls besides the ops themselves."""

from __future__ import annotations

from typing import Any

import torch

from fleetx import torch_private


def check_finite(result: Any) -> Any:
    """Return what an op has computed, or raise a FloatingPointError if a number is not finite."""
    values = result if isinstance(result, list | tuple) else [result]
    for value in values:
        if isinstance(value, list | tuple):
            check_finite(value)
        elif isinstance(value, torch.Tensor) and value.is_floating_point():
            numbers = value.coalesce().values() if value.is_sparse else value
            if not torch.isfinite(numbers).all():
                bad = "nan" if torch.isnan(numbers).any() else "inf"
                raise FloatingPointError(
                    f"find nan or inf: a result of shape {list(value.shape)} contains {bad}"
                )
    return result


def cut_value(value: Any) -> Any:
    """Return a value detached from its graph; arrays and missing values are unchanged."""
    return value.detach() if isinstance(value, torch.Tensor) else value


def keep_value(value: Any) -> Any:
    """Return a value to store in a scope: detached, and sharing no memory with others."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            value = value.detach()
        if torch_private.base_of(value) is not None:
            value = value.clone()
    return value


def differentiate(
    outputs: tuple[torch.Tensor, ...],
    inputs: tuple[torch.Tensor, ...],
    seeds: tuple[torch.Tensor, ...],
    retain_graph: bool = False,
    rows: tuple[int, ...] = (),
) -> tuple[torch.Tensor, ...]:
    """Return the gradients of outputs with respect to inputs; zeros if there is no path.

    `rows` are the positions of those that may be sparse.
    """
    pairs = [
        (o, s if s.shape == o.shape else s.reshape(o.shape))
        for o, s in zip(outputs, seeds, strict=True)
        if o.requires_grad
    ]
    if not pairs:
        return tuple(torch.zeros_like(i) for i in inputs)
    outs, weights = zip(*pairs, strict=True)
    # What torch.autograd.grad calls, without its checks: the lowering generated the arguments.
    grads = torch_private.engine_run_backward(
        outs, weights, retain_graph, False, inputs, allow_unreachable=True, accumulate_grad=False
    )
    if any(g is None or g.is_sparse for g in grads):
        grads = tuple(
            torch.zeros_like(i)
            if g is None
            else (g.to_dense() if g.is_sparse and at not in rows else g)
            for at, (g, i) in enumerate(zip(grads, inputs, strict=True))
        )
    return grads
