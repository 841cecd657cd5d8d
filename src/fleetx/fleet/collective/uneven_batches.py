"""Training loops of different lengths: workers that run out of batches early, on torch's Join.

A worker that has left its loop joins the others' collectives with zero gradients. At the end it
receives the parameters (by torch's Join) and the optimizer's state (by this module, so that the
next epoch starts equal everywhere) of a worker that trained to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from fleetx import comm
from fleetx.comm.sync_batch_norm import SyncBatchNorm
from fleetx.fleet.collective.distributed_model import DistributedModel, LocalModel


@contextmanager
def join(model: nn.Module, optimizer: Any = None) -> Iterator[None]:
    """Allow training loops of different lengths on the workers in this context.

    Args:
        model: what `fleet.distributed_model` returned; with one worker, nothing is done.
        optimizer: what `fleet.distributed_optimizer` returned, whose state is equal afterwards.
    """
    if not isinstance(model, DistributedModel):
        if isinstance(model, LocalModel) and comm.is_connected():
            raise ValueError(
                "with fleet.join, a worker that is done takes part in the others' all-reduces, but "
                "this strategy exchanges something else (localsgd, dgc, gradient_merge): switch "
                "that off, or give all workers equally many batches."
            )
        if comm.is_connected():
            raise TypeError(
                "fleet.join takes the model that fleet.distributed_model returned, not "
                f"{type(model).__name__}."
            )
        yield
        return
    if model.exchanges_parameters:
        raise ValueError(
            "with fleet.join, a worker that is done takes part in the others' all-reduces, but "
            "sharding also sends parameters after each update: switch it off, or give all workers "
            "equally many batches."
        )
    if any(isinstance(m, SyncBatchNorm) for m in model.modules()):
        raise ValueError(
            "fleet.join cannot be used with sync_batch_norm, which needs every worker in every "
            "forward pass: switch it off or give all workers equally many batches."
        )
    steps = 0

    def count(*_: Any) -> None:
        nonlocal steps
        steps += 1

    handle = model.register_forward_pre_hook(count)
    try:
        with model.averaging.join():
            yield
    finally:
        handle.remove()
    if optimizer is not None:
        _share_state(optimizer, steps)


def _share_state(optimizer: Any, steps: int) -> None:
    """Broadcast the optimizer's state of the first worker with the most steps."""
    made = [int(t) for t in comm.all_gather(torch.tensor(steps))]
    most = max(made)
    if min(made) == most:
        return
    state = [optimizer.state_dict()]
    dist.broadcast_object_list(state, src=made.index(most))
    optimizer.load_state_dict(state[0])
