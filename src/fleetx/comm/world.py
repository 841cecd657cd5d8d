"""All workers of a job: meeting them, and the collectives over all of them.

With one worker nothing is set up and every collective is the identity, so that callers need no
special case. NCCL serves CUDA devices and Gloo the CPU; everything else is the same on both.
"""

from __future__ import annotations

import atexit
import datetime
import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.distributed as dist

from fleetx import torch_private
from fleetx.comm.agreement import Asked, DisagreementError, agree
from fleetx.comm.device import device_of_messages
from fleetx.comm.lost_workers import explain_lost_workers
from fleetx.runtime import heartbeat
from fleetx.runtime.network import split_endpoint
from fleetx.runtime.worker_environment import WorkerEnvironment, use_interface_towards_master

_REDUCTIONS = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
}

# Communicators by ring number; ring 0 is the default group.
_rings: dict[int, dist.ProcessGroup] = {}
_agreements = 0
_patience = 300.0  # how long workers wait for each other before they compare anything


def backend_for(device: torch.device, launcher: str = "none") -> str:
    """Return the collective library for a kind of device.

    On the CPU it is MPI for workers that mpirun started, if this torch was built with it.
    """
    if device.type == "cuda":
        return "nccl"
    return "mpi" if launcher == "mpi" and dist.is_mpi_available() else "gloo"


@dataclass(frozen=True)
class _Meeting:
    """With whom to meet, how, and what to tell them."""

    worker: WorkerEnvironment
    device: torch.device
    timeout_seconds: float
    asked: Asked


_pending: _Meeting | None = None


def connect(
    worker: WorkerEnvironment,
    device: torch.device,
    *,
    timeout_seconds: float = 300.0,
    asked: Asked | None = None,
    later: bool = False,
) -> None:
    """Meet the other workers; returns when all are there, raises after the timeout.

    A process group that the script has made itself is used as it is, if its size is right.

    Args:
        worker: this worker's place among them.
        device: what it computes on; decides the collective library.
        timeout_seconds: how long to wait for workers that have not come yet.
        asked: what this worker was asked for; all must have been asked for the same.
        later: meet at the first communication instead of now.
    """
    global _pending
    if worker.world_size == 1:
        _pending = None
        return
    announced = _pending is not None and _pending.worker == worker and asked is None
    if not announced:
        _pending = _Meeting(worker, device, timeout_seconds, asked or {})
    if not later:
        meet()


def cancel_meeting() -> None:
    """Forget a meeting that `connect` was told to hold later; a session begins anew."""
    global _pending
    _pending = None


def meet() -> None:
    """Meet the other workers now, if `connect` was told to do that later."""
    global _pending, _patience
    meeting, _pending = _pending, None
    if meeting is None:
        return
    worker = meeting.worker
    if meeting.asked:
        _patience = meeting.timeout_seconds
    if dist.is_initialized():
        if dist.get_world_size() != worker.world_size:
            raise RuntimeError(
                f"torch.distributed is already initialised for {dist.get_world_size()} workers, "
                f"but the environment ({worker.launcher}) says {worker.world_size}."
            )
        if meeting.asked:
            agree_on(meeting.asked)
        return
    try:
        _join(meeting)
    except DisagreementError:
        raise
    except (dist.DistNetworkError, dist.DistStoreError, TimeoutError, RuntimeError) as error:
        raise RuntimeError(
            f"worker {worker.rank} of {worker.world_size} did not meet the others at "
            f"{worker.master} within {meeting.timeout_seconds:.0f} s: another worker is missing or "
            "has another world size, the address is wrong or in use by another job, or a firewall "
            f"or proxy is between ({error})."
        ) from error
    explain_lost_workers()
    # A group whose threads still run when the interpreter ends makes the process abort.
    atexit.register(disconnect)


def _join(meeting: _Meeting) -> None:
    worker, timeout = meeting.worker, datetime.timedelta(seconds=meeting.timeout_seconds)
    host, port = split_endpoint(worker.master)
    store = dist.TCPStore(
        host,
        port,
        is_master=worker.rank == 0 and not worker.store_is_kept,
        timeout=timeout,
        # All may believe in different world sizes; that is found out by comparing.
        wait_for_workers=False,
        multi_tenant=True,
    )
    first = dist.PrefixStore("fleetx/meeting", store)
    agree(first, worker.rank, worker.world_size, meeting.asked, meeting.timeout_seconds)
    use_interface_towards_master(worker)
    dist.init_process_group(
        backend_for(meeting.device, worker.launcher),
        store=dist.PrefixStore("default_pg", store),
        rank=worker.rank,
        world_size=worker.world_size,
        timeout=timeout,
    )


def agree_on(asked: Asked, details: Asked | None = None) -> None:
    """Compare with all workers what this one was asked for; raise on all of them if it differs.

    Workers that have not met yet do it when they meet. `details` may be long, and can be compared
    by workers that have met only: they are looked at one by one if a checksum differs.
    """
    global _pending, _agreements
    if _pending is not None:
        _pending = replace(_pending, asked=asked)
    elif is_connected():
        _agreements += 1
        store = torch_private.default_store()
        fresh = dist.PrefixStore(f"fleetx/agreement/{_agreements}", store)
        agree(fresh, dist.get_rank(), dist.get_world_size(), asked, _patience, details)


def disconnect() -> None:
    """Leave the group, after everything that holds a part of it has let go.

    A group ends its threads when the last reference to it goes. That must be before the interpreter
    ends: a thread that then wants to return a Python object aborts the process.
    """
    global _pending
    _pending = None
    for user in list(_users):
        user.leave()
    _rings.clear()
    if dist.is_initialized():
        backends = torch_private.backends()  # they end after their groups
        dist.destroy_process_group()
        backends.clear()
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
    """Tell whether there is more than this worker; the others may be met only later."""
    return world_size() > 1


def rank() -> int:
    """Return this worker's number."""
    if _pending is not None:
        return _pending.worker.rank
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of workers."""
    if _pending is not None:
        return _pending.worker.world_size
    return dist.get_world_size() if dist.is_initialized() else 1


def ring(number: int) -> dist.ProcessGroup | None:
    """Return communicator `number` over all workers, made on first use; every worker must ask for
    it.

    Ring 0 is the default group.
    """
    meet()
    if not dist.is_initialized():
        return None
    if number not in _rings:
        _rings[number] = torch_private.default_group() if number == 0 else dist.new_group()
    return _rings[number]


def reduction(name: str) -> dist.ReduceOp.RedOpType:
    """Return torch's reduction for 'sum', 'max', 'min' or 'prod'."""
    if name not in _REDUCTIONS:
        raise ValueError(f"a reduction is one of {', '.join(_REDUCTIONS)}, not {name!r}.")
    return _REDUCTIONS[name]


def _copy_to_send(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(device_of_messages(tensor), copy=True)


def all_reduce(tensor: torch.Tensor, mode: str = "sum", ring_id: int = 0) -> torch.Tensor:
    """Return the tensors of all workers reduced, the same on all of them."""
    kind = reduction(mode)
    if not is_connected():
        return tensor.detach().clone()
    with heartbeat.collective("all-reduce"):
        group = ring(ring_id)
        result = _copy_to_send(tensor)
        dist.all_reduce(result, kind, group=group)
    return result.to(tensor.device)


def all_reduce_mean(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the means of tensors of one type over all workers, by one message."""
    if not tensors or not is_connected():
        return list(tensors)
    flat = torch.cat([t.reshape(-1) for t in tensors]).div_(world_size())
    parts = all_reduce(flat).split([t.numel() for t in tensors])
    return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]


def broadcast(tensor: torch.Tensor, source: int = 0, ring_id: int = 0) -> torch.Tensor:
    """Return the tensor of worker `source`."""
    if not is_connected():
        return tensor.detach().clone()
    with heartbeat.collective("broadcast"):
        group = ring(ring_id)
        result = _copy_to_send(tensor)
        dist.broadcast(result, source, group=group)
    return result.to(tensor.device)


def all_gather(tensor: torch.Tensor, ring_id: int = 0) -> list[torch.Tensor]:
    """Return the tensors of all workers, which must have one shape, by rank."""
    if not is_connected():
        return [tensor.detach().contiguous().clone()]
    with heartbeat.collective("all-gather"):
        group = ring(ring_id)
        sent = tensor.detach().contiguous().to(device_of_messages(tensor))
        parts = [torch.empty_like(sent) for _ in range(world_size())]
        dist.all_gather(parts, sent, group=group)
    return [part.to(tensor.device) for part in parts]


def barrier() -> None:
    """Wait until all workers have come here."""
    if is_connected():
        with heartbeat.collective("barrier"):
            dist.barrier(group=ring(0))
