"""Operations on a gradient before an update: clipping, and the gradients of penalties."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fleetx import torch_private

CLIP_EPSILON = 1e-6
"""Added to a norm before dividing by it, as in torch's `clip_grad_norm_`."""


def square_norm(grads: Sequence[Tensor]) -> float:
    """Return the sum of squares of all elements."""
    return sum(float(grad.square().sum()) for grad in grads)


def clip_factor(
    grads: list[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    reduce: Callable[[Tensor, str], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the factor, at most 1, that scales the global norm of the gradients to `max_norm`, as
    in torch's `clip_grad_norm_`; and that norm.

    `reduce` reduces a tensor over the workers ("sum" or "max") if gradients are sharded; a shard
    may be empty.
    """
    norms = torch_private.foreach_norm(list(grads), norm_type) if grads else [torch.zeros(())]
    first = norms[0]
    together = torch.stack([norm.to(first.device, first.dtype) for norm in norms])
    # Sorted: the front ends list parameters in different orders.
    norm = torch.linalg.vector_norm(together.sort().values, norm_type)
    if reduce is not None and math.isinf(norm_type):
        norm = reduce(norm.double(), "max")
    elif reduce is not None:
        norm = reduce(norm.double() ** norm_type, "sum") ** (1.0 / norm_type)
    return (max_norm / (norm + CLIP_EPSILON)).clamp(max=1.0), norm


def clip_by_norm(x: Tensor, *, max_norm: float) -> Tensor:
    """Return `x`, scaled down to the norm `max_norm` if its norm is greater."""
    return x * (max_norm / x.square().sum().sqrt()).clamp(max=1.0)


def clip_locally(grad: Tensor, limit: float) -> Tensor:
    """Return a worker's gradient, clipped to this norm."""
    norm = grad.norm()
    return torch.where(norm > limit, grad * (limit / norm), grad)


def penalised(grad: Tensor, param: Tensor, *, l1: float, l2: float) -> Tensor:
    """Return the gradient plus that of the penalties l1 * |p| and l2 / 2 * p^2."""
    if l2:
        grad = grad.add(param, alpha=l2)
    return grad.add(param.sign(), alpha=l1) if l1 else grad


def decay(grad: Tensor, param: Tensor, kind: int, coeff: float) -> Tensor:
    """Return a gradient with weight decay: kind 0 none, 1 L1, 2 L2."""
    if kind == 0:
        return grad
    return grad.add(param.sign() if kind == 1 else param, alpha=coeff)
