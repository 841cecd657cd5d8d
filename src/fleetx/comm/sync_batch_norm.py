"""Batch normalisation with the statistics of all workers' batches, on any device.

Each worker contributes (count, mean, sum of squared deviations) per channel; combining them by the
parallel formula keeps the precision of a single pass over the whole batch. torch's own
SyncBatchNorm needs CUDA.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fleetx import torch_private
from fleetx.comm import world


def _per_channel(x: torch.Tensor) -> list[int]:
    return [d for d in range(x.dim()) if d != 1]


def _shaped(value: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return value.reshape([1, -1] + [1] * (x.dim() - 2))


def global_statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (count, mean, biased variance) per channel over the batches of all workers."""
    axes = _per_channel(x)
    wide = x if x.dtype == torch.float64 else x.to(torch.float32)
    rows = x.numel() / max(1, x.shape[1])
    count = torch.full((x.shape[1],), rows, dtype=wide.dtype, device=x.device)
    mean = wide.mean(axes)
    deviation = (wide - _shaped(mean, x)).square().sum(axes)
    parts = torch.stack(world.all_gather(torch.stack([count, mean, deviation])))
    counts, means, deviations = parts.unbind(1)
    total = counts.sum(0)
    overall = (counts * means).sum(0) / total
    variance = (deviations + counts * (means - overall).square()).sum(0) / total
    return total, overall, variance


class _SyncBatchNorm(torch.autograd.Function):
    """y = (x - mean) / sqrt(variance + epsilon) * weight + bias, mean and variance of all
    workers."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        total, mean, variance = global_statistics(x)
        inverse = torch.rsqrt(variance + epsilon)
        normal = ((x - _shaped(mean, x)) * _shaped(inverse, x)).to(x.dtype)
        ctx.save_for_backward(normal, weight, inverse, total)
        y = normal * _shaped(weight, x) + _shaped(bias, x)
        ctx.mark_non_differentiable(mean, variance, total)
        return y.to(x.dtype), mean, variance, total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        grad = grads[0]
        normal, weight, inverse, total = ctx.saved_tensors
        axes = _per_channel(grad)
        grad_bias = grad.sum(axes)
        grad_weight = (grad * normal).sum(axes)
        sums = world.all_reduce(torch.stack([grad_bias, grad_weight]))
        scale = _shaped(weight * inverse, grad)
        grad_x = scale * (
            grad - _shaped(sums[0] / total, grad) - normal * _shaped(sums[1] / total, grad)
        )
        return grad_x.to(grad.dtype), grad_weight, grad_bias, None


def sync_batch_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (y, mean, biased variance, count) of a batch spread over all workers."""
    result: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] = _SyncBatchNorm.apply(
        x, weight, bias, epsilon
    )
    return result


class SyncBatchNorm(torch_private.BatchNormBase):
    """torch's batch normalisation with the statistics of all workers while training."""

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalise the batch, in evaluation mode with the running statistics."""
        if not self.training or not world.is_connected():
            return super().forward(input)
        channels = input.shape[1]
        weight = self.weight if self.affine else input.new_ones(channels)
        bias = self.bias if self.affine else input.new_zeros(channels)
        y, mean, variance, total = sync_batch_norm(input, weight, bias, self.eps)
        if self.track_running_stats:
            with torch.no_grad():
                self._move_statistics(mean, variance * (total / (total - 1).clamp(min=1)))
        return y

    def _move_statistics(self, mean: torch.Tensor, unbiased: torch.Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)


def convert_sync_batch_norm(module: nn.Module) -> nn.Module:
    """Replace every BatchNorm in a module with one that uses the statistics of all workers."""
    if isinstance(module, SyncBatchNorm):
        return module
    if isinstance(module, torch_private.BatchNormBase):
        new = SyncBatchNorm(
            module.num_features,
            module.eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
        )
        values = {**torch_private.parameters_of(module), **torch_private.buffers_of(module)}
        for name, value in values.items():
            setattr(new, name, value)
        new.training = module.training
        return new
    for name, child in module.named_children():
        setattr(module, name, convert_sync_batch_norm(child))
    return module
