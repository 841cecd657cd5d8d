"""Wrapping a model as a composed step trains it: in DDP, on its own, or as a pipeline stage."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fleetx.comm import world
from fleetx.comm.buckets import FIRST_MB, growing_limits
from fleetx.comm.gradient_all_reduce import AllReduceSettings
from fleetx.fleet.collective import bucket_hooks
from fleetx.fleet.collective.distributed_model import (
    DistributedModel,
    GradientAveraging,
    LocalModel,
    LooksLikeItsModule,
)
from fleetx.fleet.collective.gradient_watch import GradientWatch
from fleetx.fleet.collective.pipeline_model import PipelineModel
from fleetx.step.stages import ParameterSync, Precision
from fleetx.step.technique import Job
from fleetx.step.train_step import TrainStep


def wrap(
    model: nn.Module, job: Job, step: TrainStep, find_unused_parameters: bool = False
) -> LooksLikeItsModule:
    """Return the model wrapped for a step, and register it with the step."""
    model = step.memory.prepare(model)
    trains = any(p.requires_grad for p in model.parameters())
    wrapped: LooksLikeItsModule
    if world.is_connected() and trains and step.grad_sync.during_backward:
        wrapped = wrap_model(
            model,
            job.all_reduce,
            scale=step.precision.message_scale,
            bucket_mb=job.bucket_mb,
            find_unused_parameters=find_unused_parameters,
        )
        wrapped.exchanges_parameters = type(step.param_sync) is not ParameterSync
    else:
        wrapped = local = LocalModel(model)
        if world.is_connected():
            local.start_equal()
            step.place(model)
            local.take_parameters()
            if step.batches is not None:
                assert step.stage_state is not None
                wrapped = PipelineModel(local, step.batches, step.stage_state)
    if type(step.precision) is not Precision:
        wrapped.forward = step.precision.wrap_forward(wrapped.forward)  # type: ignore[method-assign]
    wrapped.forward = _with_signature(wrapped.forward, model)  # type: ignore[method-assign]
    step.take_model(model)
    return wrapped


def _with_signature(run: Callable[..., Any], model: nn.Module) -> Callable[..., Any]:
    """Return a function with the signature of the model's forward, which libraries look at to find
    the names of its arguments."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)

    forward.__doc__ = model.forward.__doc__
    forward.__signature__ = inspect.signature(model.forward)  # type: ignore[attr-defined]
    return forward


def wrap_model(
    model: nn.Module,
    settings: AllReduceSettings,
    *,
    scale: Callable[[], float],
    bucket_mb: float,
    find_unused_parameters: bool,
) -> DistributedModel:
    """Return the model with gradients averaged over workers during backward.

    Parameters and buffers start as rank 0 has them. `scale` returns what gradients are multiplied
    by in messages of half precision.
    """
    averaging = GradientAveraging(
        model,
        find_unused_parameters=find_unused_parameters,
        gradient_as_bucket_view=True,
        **_bucket_sizes(bucket_mb),
    )
    averaging.watch = GradientWatch(model, finds_unused=find_unused_parameters)
    world.hold(averaging)
    if settings.dtype is not None and settings == AllReduceSettings(dtype=settings.dtype):
        averaging.register_comm_hook((settings.dtype, scale), bucket_hooks.exchange_halves)
    elif settings != AllReduceSettings():
        averaging.register_comm_hook(bucket_hooks.HookState(settings, scale), bucket_hooks.exchange)
    return DistributedModel(averaging)


def _bucket_sizes(limit_mb: float) -> dict[str, Any]:
    """Return the arguments that let buckets grow to a size, where this torch has them."""
    if "bucket_cap_mb_list" in inspect.signature(DistributedDataParallel).parameters:
        return {"bucket_cap_mb_list": growing_limits(FIRST_MB, limit_mb)}
    return {"bucket_cap_mb": limit_mb}
