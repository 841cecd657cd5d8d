"""The distributed model of the eager front end, which still looks like the user's module.

Attributes and state_dict are those of the wrapped module, so that scripts, checkpoints and
libraries that look into a model work as they did on one worker. Where backward averages gradients
it is a DistributedDataParallel; other techniques exchange later, and then it only starts equal.
"""

import inspect
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from fleetx.comm import world
from fleetx.comm.buckets import FIRST_MB, growing_limits
from fleetx.comm.gradient_all_reduce import AllReduceSettings, GradientAllReduce
from fleetx.fleet.embedding_errors import outside_embedding
from fleetx.launch import heartbeat
from fleetx.static.feeding import warn_of_empty_batch
from fleetx.step.stages import Precision
from fleetx.step.technique import Job
from fleetx.step.train_step import TrainStep


class LooksLikeItsModule(nn.Module):
    """Attributes and state of the module inside."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module; an error about an index names the embedding and the id."""
        if self.training:
            for value in args:
                if isinstance(value, torch.Tensor) and value.dim() and not value.shape[0]:
                    warn_of_empty_batch("an argument of the model", value)
        try:
            return super().__call__(*args, **kwargs)
        except (IndexError, RuntimeError) as error:
            reason = outside_embedding(error, self.module)
            if reason is None:
                raise
            raise IndexError(reason) from error

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state of the user's module, under its own names."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load a state of the user's module."""
        return self.module.load_state_dict(state_dict, strict=strict, assign=assign)


class LocalModel(LooksLikeItsModule):
    """A module whose backward stays on this worker; it starts as rank 0 has it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            tensor.data.copy_(world.broadcast(tensor.data))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module."""
        return self.module(*args, **kwargs)


class DistributedModel(LooksLikeItsModule, DistributedDataParallel):
    """A module whose gradients are averaged over all workers during backward."""

    def _sync_buffers(self) -> None:
        with heartbeat.collective("broadcast of buffers"):
            super()._sync_buffers()

    def leave(self) -> None:
        """Let go of the process group: the reducer holds it, with the hooks of its messages."""
        self.reducer = self.logger = self.process_group = None  # type: ignore[assignment]


def wrap(
    model: nn.Module, job: Job, step: TrainStep, find_unused_parameters: bool = False
) -> nn.Module:
    """Return the model as a step trains it, and tell the step; it is the model itself where there
    is nothing to do."""
    model = step.memory.prepare(model)
    trains = any(p.requires_grad for p in model.parameters())
    changes_forward = type(step.precision) is not Precision
    wrapped = model
    if world.is_connected() and trains and step.grad_sync.during_backward:
        wrapped = wrap_model(
            model,
            job.all_reduce,
            bucket_mb=job.bucket_mb,
            find_unused_parameters=find_unused_parameters,
        )
    elif changes_forward or world.is_connected():
        wrapped = LocalModel(model)
    if changes_forward:
        wrapped.forward = step.precision.wrap_forward(wrapped.forward)
    step.take_model(model)
    return wrapped


def wrap_model(
    model: nn.Module,
    settings: AllReduceSettings,
    *,
    bucket_mb: float,
    find_unused_parameters: bool,
) -> nn.Module:
    """Return the model with gradients averaged over workers during backward.

    Parameters and buffers start as rank 0 has them.
    """
    wrapped = DistributedModel(
        model,
        find_unused_parameters=find_unused_parameters,
        gradient_as_bucket_view=True,
        **_bucket_sizes(bucket_mb),
    )
    world.hold(wrapped)
    if settings.group_size or settings.communicators > 1:
        wrapped.register_comm_hook(_HookState(settings), _exchange)
    elif settings.dtype is torch.float16:
        wrapped.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif settings.dtype is torch.bfloat16:
        wrapped.register_comm_hook(None, default_hooks.bf16_compress_hook)
    return wrapped


def _bucket_sizes(limit_mb: float) -> dict[str, Any]:
    """Return the arguments that let buckets grow to a size, where this torch has them."""
    if "bucket_cap_mb_list" in inspect.signature(DistributedDataParallel).parameters:
        return {"bucket_cap_mb_list": growing_limits(FIRST_MB, limit_mb)}
    return {"bucket_cap_mb": limit_mb}


class _HookState:
    """What the communication hook needs: how to sum, and a thread to wait for the end in."""

    def __init__(self, settings: AllReduceSettings) -> None:
        self.all_reduce = GradientAllReduce(settings)
        self.waiting = ThreadPoolExecutor(1)


def _exchange(state: _HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average one bucket over all workers."""
    buffer = bucket.buffer()
    buffer.div_(dist.get_world_size())
    handle = state.all_reduce.start(buffer)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()

    def finish() -> None:
        try:
            handle.wait()
        except Exception as error:  # handed on: backward raises it
            future.set_exception(error)  # type: ignore[arg-type]  # torch's own stub is wrong
        else:
            future.set_result(buffer)

    state.waiting.submit(finish)
    return future
