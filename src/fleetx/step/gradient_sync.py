"""Averaging gradients over workers after backward, for techniques that act on local gradients
first.

Gradients are all-reduced in flat buckets, as in a plain step. A bucket has a flag per gradient, so
that a parameter that has no gradient on any worker stays without one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fleetx.comm.buckets import make_buckets
from fleetx.comm.divided_tensors import is_divided, own_part
from fleetx.comm.gradient_all_reduce import GradientAllReduce, GradientExchange, Handle
from fleetx.runtime import heartbeat
from fleetx.step.stages import GradientSync, Parameters


class AfterBackward(GradientSync):
    """Averages all gradients after backward."""

    during_backward = False

    def __init__(self, exchange: GradientExchange, scale: Callable[[], float]) -> None:
        """`scale` returns what gradients are multiplied by in messages of half precision."""
        self._exchange = exchange
        self._scale = scale
        self.divisor: Callable[[], float] = lambda: exchange.all_reduce.workers
        """Returns this worker's gradient divisor, with which the sum over workers is the mean."""

    @property
    def all_reduce(self) -> GradientAllReduce:
        """How a bucket is summed."""
        return self._exchange.all_reduce

    @torch.no_grad()
    def exchange(self, parameters: Parameters) -> None:
        """Replace every gradient by its mean over all workers."""
        if self.all_reduce.workers < 2:
            return
        tensors = [p for p in parameters.values() if p.requires_grad]
        buckets = make_buckets(
            tensors, limit_mb=self._exchange.limit_mb, last_mb=self._exchange.last_mb
        )
        self._exchange.announce(len(tensors), len(buckets))
        divisor = self.divisor()
        scale = 1.0 if self.all_reduce.settings.dtype is None else self._scale()
        under_way: list[tuple[Handle, torch.Tensor, list[torch.Tensor]]] = []
        for bucket in buckets:
            members = [tensors[i] for i in bucket.members]
            flat = flat_gradients(members).div_(divisor / scale)
            under_way.append((self.all_reduce.start(flat), flat, members))
        for handle, flat, members in under_way:
            with heartbeat.collective("gradient all-reduce"):
                handle.wait()
            _unflatten(flat if scale == 1.0 else flat.mul_(1.0 / scale), members)


def is_all_reduce(stage: GradientSync) -> bool:
    """Return whether a stage averages gradients by an all-reduce, during backward or after it."""
    return type(stage.innermost()) in (GradientSync, AfterBackward)


def flat_gradients(members: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return this worker's gradients of some parameters, and for each a mark that says whether
    there is one.
    """
    parts: list[Any] = []
    for p in members:
        grad = own_part(p).new_zeros(own_part(p).numel()) if p.grad is None else own_part(p.grad)
        parts.append((grad.to_dense() if grad.is_sparse else grad).reshape(-1))
    marks = torch.tensor([p.grad is not None for p in members], dtype=members[0].dtype)
    return torch.cat([*parts, marks.to(parts[0].device)])


def _unflatten(flat: torch.Tensor, members: list[torch.Tensor]) -> None:
    sizes = [own_part(p).numel() for p in members]
    *grads, marks = flat.split([*sizes, len(members)])
    for parameter, grad, mark in zip(members, grads, marks.tolist(), strict=True):
        if mark <= 0:
            parameter.grad = None
        elif is_divided(parameter):
            parameter.grad = (
                torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            )
            own = own_part(parameter.grad)
            own.copy_(grad.view(own.shape))
        else:
            parameter.grad = grad.view(parameter.shape)
