"""Averaging gradients over workers after backward, for techniques that need them first.

The gradients travel in flat buckets, through the same all-reduce as those of a plain step. A bucket
carries a mark per gradient that says who has one, so that a parameter without a gradient on every
worker stays without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fleetx.comm import world
from fleetx.comm.buckets import make_buckets
from fleetx.comm.gradient_all_reduce import GradientAllReduce, GradientExchange, Handle
from fleetx.runtime import heartbeat
from fleetx.step.stages import GradientSync, Parameters


class AfterBackward(GradientSync):
    """Averages all gradients when backward has ended."""

    during_backward = False

    def __init__(self, exchange: GradientExchange, scale: Callable[[], float]) -> None:
        """`scale` returns what gradients are multiplied by in messages of half precision."""
        self._exchange = exchange
        self._scale = scale
        self.divisor: Callable[[], float] = world.world_size
        """Returns what this worker divides its gradients by, so that their sum is the mean."""

    @property
    def all_reduce(self) -> GradientAllReduce:
        """How a bucket is summed."""
        return self._exchange.all_reduce

    def exchange(self, parameters: Parameters) -> None:
        """Replace every gradient by its mean over all workers."""
        if not world.is_connected():
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
            flat = _flatten(members, bucket.dtype).div_(divisor / scale)
            under_way.append((self.all_reduce.start(flat), flat, members))
        for handle, flat, members in under_way:
            with heartbeat.collective("gradient all-reduce"):
                handle.wait()
            _unflatten(flat if scale == 1.0 else flat.mul_(1.0 / scale), members)


def is_all_reduce(stage: GradientSync) -> bool:
    """Return whether a stage averages gradients by an all-reduce, during backward or after it."""
    return type(stage.innermost()) in (GradientSync, AfterBackward)


def _flatten(members: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Return the gradients and the marks of a bucket."""
    parts: list[Any] = [p.new_zeros(p.numel()) if p.grad is None else p.grad for p in members]
    parts = [(g.to_dense() if g.is_sparse else g).reshape(-1) for g in parts]
    marks = torch.tensor([p.grad is not None for p in members], dtype=dtype)
    return torch.cat([*parts, marks.to(parts[0].device)])


def _unflatten(flat: torch.Tensor, members: list[torch.Tensor]) -> None:
    sizes = [p.numel() for p in members]
    *grads, marks = flat.split([*sizes, len(members)])
    for parameter, grad, mark in zip(members, grads, marks.tolist(), strict=True):
        parameter.grad = grad.view(parameter.shape) if mark > 0 else None
