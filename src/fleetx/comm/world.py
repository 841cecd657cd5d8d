"""All workers of a job: meeting them, and the collectives over all of them.

With one worker nothing is set up and every collective is the identity, so that callers need no
special case. NCCL serves CUDA devices and Gloo the CPU; everything else is the same on both.
"""

from __future__ import annotations

import atexit
import datetime
import gc
import weakref
from typing import Protocol

import torch
import torch.distributed as dist

from fleetx.comm.lost_workers import explain_lost_workers
from fleetx.launch.worker_environment import WorkerEnvironment

_REDUCTIONS = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
}

# Communicators by ring number; ring 0 is the default group.
_rings: dict[int, dist.ProcessGroup] = {}


def backend_for(device: torch.device) -> str:
    """Return the collective library for a kind of device."""
    return "nccl" if device.type == "cuda" else "gloo"


def connect(
    worker: WorkerEnvironment, device: torch.device, *, timeout_seconds: float = 300.0
) -> None:
    """Meet the other workers; returns when all are there, raises after the timeout.

    A process group that the script has made itself is used as it is, if its size is right.
    """
    if dist.is_initialized():
        if dist.get_world_size() != worker.world_size:
            raise RuntimeError(
                f"torch.distributed is already initialised for {dist.get_world_size()} workers, "
                "but the "
                f"environment ({worker.launcher}) says {worker.world_size}."
            )
        return
    if worker.world_size == 1:
        return
    try:
        dist.init_process_group(
            backend_for(device),
            init_method=f"tcp://{worker.master}",
            rank=worker.rank,
            world_size=worker.world_size,
            timeout=datetime.timedelta(seconds=timeout_seconds),
        )
    except (dist.DistNetworkError, dist.DistStoreError, TimeoutError, RuntimeError) as error:
        raise RuntimeError(
            f"worker {worker.rank} of {worker.world_size} did not meet the others at "
            f"{worker.master} within "
            f"{timeout_seconds:.0f} s: another worker is missing or has another world size, the "
            "address is "
            f"wrong, or a firewall or proxy is between ({error})."
        ) from error
    explain_lost_workers()
    # A group whose threads still run when the interpreter ends makes the process abort.
    atexit.register(disconnect)


def disconnect() -> None:
    """Leave the group, after everything that holds a part of it has let go.

    A group ends its threads when the last reference to it goes. That must be before the interpreter
    ends: a thread that then wants to return a Python object aborts the process.
    """
    for user in list(_users):
        user.leave()
    _rings.clear()
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()


class User(Protocol):
    """Something that holds process groups."""

    def leave(self) -> None:
        """Let go of them; it will not communicate any more."""


_users: weakref.WeakSet[User] = weakref.WeakSet()


def hold(user: User) -> None:
    """Note that an object holds process groups, so that it is told to leave them at the end."""
    _users.add(user)


def is_connected() -> bool:
    """Tell whether there is more than this worker."""
    return dist.is_initialized() and dist.get_world_size() > 1


def rank() -> int:
    """Return this worker's number."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of workers."""
    return dist.get_world_size() if dist.is_initialized() else 1


def ring(number: int) -> dist.ProcessGroup | None:
    """Return communicator `number` over all workers, made on first use; every worker must ask for
    it.

    Ring 0 is the default group.
    """
    if not dist.is_initialized():
        return None
    if number not in _rings:
        _rings[number] = (
            dist.distributed_c10d._get_default_group() if number == 0 else dist.new_group()
        )
    return _rings[number]


def reduction(name: str) -> dist.ReduceOp.RedOpType:
    """Return torch's reduction for 'sum', 'max', 'min' or 'prod'."""
    if name not in _REDUCTIONS:
        raise ValueError(f"a reduction is one of {', '.join(_REDUCTIONS)}, not {name!r}.")
    return _REDUCTIONS[name]


def all_reduce(tensor: torch.Tensor, mode: str = "sum", ring_id: int = 0) -> torch.Tensor:
    """Return the tensors of all workers reduced, the same on all of them."""
    kind = reduction(mode)
    result = tensor.detach().clone()
    if is_connected():
        dist.all_reduce(result, kind, group=ring(ring_id))
    return result


def broadcast(tensor: torch.Tensor, source: int = 0, ring_id: int = 0) -> torch.Tensor:
    """Return the tensor of worker `source`."""
    result = tensor.detach().clone()
    if is_connected():
        dist.broadcast(result, source, group=ring(ring_id))
    return result


def all_gather(tensor: torch.Tensor, ring_id: int = 0) -> list[torch.Tensor]:
    """Return the tensors of all workers, which must have one shape, by rank."""
    tensor = tensor.detach().contiguous()
    if not is_connected():
        return [tensor.clone()]
    parts = [torch.empty_like(tensor) for _ in range(world_size())]
    dist.all_gather(parts, tensor, group=ring(ring_id))
    return parts


def barrier() -> None:
    """Wait until all workers have come here."""
    if is_connected():
        dist.barrier()
