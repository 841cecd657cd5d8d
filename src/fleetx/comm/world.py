"""The world of all workers: their rendezvous, and the collectives over all of them.

With one worker nothing is set up and every collective is the identity, so callers need no special
case. CUDA devices use NCCL; CPUs use shared memory on one machine, and Gloo otherwise. Everything
else is the same on both.
"""

from __future__ import annotations

import atexit
import datetime
import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.distributed as dist

from fleetx import torch_private
from fleetx.comm import shared_memory
from fleetx.comm.agreement import Asked, DisagreementError, agree
from fleetx.comm.device import device_of_messages
from fleetx.comm.lost_workers import explain_lost_workers
from fleetx.runtime import environment, heartbeat
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
_patience = 300.0  # timeout of the workers' first comparison, in seconds
_timeout: datetime.timedelta | None = None  # of the group's collectives; None: torch's own


def backend_for(device: torch.device, launcher: str = "none", requested: str = "") -> str:
    """Return the collective library for a device.

    On the CPU it is the shared memory of one machine if fleetrun started all workers there and
    `--backend` names nothing else, and MPI if mpirun started them and torch was built with it.
    """
    if not requested and device.type == "cpu" and environment.is_one_machine():
        requested = shared_memory.NAME if environment.may_share_memory() else ""
    if requested == shared_memory.NAME:
        if device.type != "cpu":
            raise ValueError(
                f"--backend {requested} connects workers that compute on CPUs, but this one "
                f"computes on {device.type}; leave the flag out."
            )
        if shared_memory.is_supported():
            shared_memory.register()
            return requested
    if device.type == "cuda":
        return "nccl"
    return "mpi" if launcher == "mpi" and dist.is_mpi_available() else "gloo"


@dataclass(frozen=True)
class _Meeting:
    """The arguments of a rendezvous."""

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
    """Connect to the other workers; return when all have joined, raise after the timeout.

    A process group that the script has created is used as it is, if its size matches.

    Args:
        worker: this worker's place among them.
        device: the device it computes on, which determines the collective library.
        timeout_seconds: how long to wait for workers that have not joined yet.
        asked: this worker's settings, which must be the same on all workers.
        later: defer the rendezvous to the first communication.
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
    """Cancel a rendezvous that `connect` has deferred: a new session starts."""
    global _pending
    _pending = None


def meet() -> None:
    """Perform the rendezvous now, if `connect` has deferred it."""
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
            f"worker {worker.rank} of {worker.world_size} did not reach the others at "
            f"{worker.master} within {meeting.timeout_seconds:.0f} s: another worker is missing or "
            "has a different world size, the address is wrong or in use by another job, or a "
            f"firewall or proxy blocks the connection ({error})."
        ) from error
    explain_lost_workers()
    # A group whose threads still run at interpreter shutdown aborts the process.
    atexit.register(disconnect)


def _join(meeting: _Meeting) -> None:
    global _timeout
    worker, timeout = meeting.worker, datetime.timedelta(seconds=meeting.timeout_seconds)
    host, port = split_endpoint(worker.master)
    store = dist.TCPStore(
        host,
        port,
        is_master=worker.rank == 0 and not worker.store_is_kept,
        timeout=timeout,
        # Workers may assume different world sizes; the comparison detects that.
        wait_for_workers=False,
        multi_tenant=True,
    )
    first = dist.PrefixStore("fleetx/meeting", store)
    agree(first, worker.rank, worker.world_size, meeting.asked, meeting.timeout_seconds)
    use_interface_towards_master(worker)
    _timeout = timeout
    dist.init_process_group(
        backend_for(meeting.device, worker.launcher, environment.backend()),
        store=dist.PrefixStore("default_pg", store),
        rank=worker.rank,
        world_size=worker.world_size,
        timeout=timeout,
    )
    if dist.get_backend() in ("gloo", shared_memory.NAME):
        # Gloo connects each pair of workers. Without a barrier, a worker that ends right after the
        # rendezvous closes its connections while others are still connecting.
        dist.barrier()


def agree_on(asked: Asked, details: Asked | None = None) -> None:
    """Compare this worker's settings with all workers'; raise on all of them if they differ.

    If the rendezvous is deferred, so is the comparison. `details` may be long, and requires that
    the workers are connected: they are compared one by one if a checksum differs.
    """
    global _pending, _agreements
    if _pending is not None:
        _pending = replace(_pending, asked=asked)
    elif is_connected():
        _agreements += 1
        store = torch_private.default_store()
        fresh = dist.PrefixStore(f"fleetx/agreement/{_agreements}", store)
        agree(fresh, dist.get_rank(), dist.get_world_size(), asked, _patience, details)


def agreements() -> int:
    """Return how often settings were compared: the same on all workers, and more with each session
    and each optimizer."""
    return _agreements


def disconnect() -> None:
    """Leave the group, after all objects that hold a part of it have released it.

    A group ends its threads when the last reference to it is dropped. This must happen before the
    interpreter shuts down: a thread that returns a Python object after that aborts the process.
    """
    global _pending
    _pending = None
    for user in list(_users):
        user.leave()
    if leave_group():
        gc.collect()


def leave_group() -> bool:
    """Release the group of all workers, as before forming another; return whether there was one."""
    global _timeout
    _rings.clear()
    _timeout = None
    if not dist.is_initialized():
        return False
    backends = torch_private.backends()  # they end after their groups
    dist.destroy_process_group()
    backends.clear()
    return True


class User(Protocol):
    """An object that holds process groups."""

    def leave(self) -> None:
        """Release the groups; the object will not communicate any more."""


_users: weakref.WeakSet[User] = weakref.WeakSet()


def hold(user: User) -> None:
    """Register an object that holds process groups, so that `disconnect` makes it release them."""
    _users.add(user)


def is_connected() -> bool:
    """Return whether there are other workers, even if the rendezvous is deferred."""
    return world_size() > 1


def shares_memory() -> bool:
    """Return whether all workers are connected and exchange tensors through shared memory."""
    return dist.is_initialized() and isinstance(
        torch_private.default_group(), shared_memory.SharedMemoryGroup
    )


def rank() -> int:
    """Return the rank of this worker."""
    if _pending is not None:
        return _pending.worker.rank
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of workers."""
    if _pending is not None:
        return _pending.worker.world_size
    return dist.get_world_size() if dist.is_initialized() else 1


def ring(number: int) -> dist.ProcessGroup | None:
    """Return communicator `number` over all workers, created on first use by a collective call.

    Ring 0 is the default group.
    """
    meet()
    if not dist.is_initialized():
        return None
    if number not in _rings:
        _rings[number] = (
            torch_private.default_group() if number == 0 else dist.new_group(timeout=timeout())
        )
    return _rings[number]


def timeout() -> datetime.timedelta | None:
    """Return the timeout of the collectives of further groups: that of the group of all workers, or
    torch's own if the script has created that.
    """
    return _timeout


def set_ring(number: int, group: dist.ProcessGroup | None) -> None:
    """Make the group of some workers communicator `number`; None is that of all workers."""
    whole = ring(0)
    if whole is not None:
        _rings[number] = whole if group is None else group


def reduction(name: str) -> dist.ReduceOp.RedOpType:
    """Return torch's reduction for 'sum', 'max', 'min' or 'prod'."""
    if name not in _REDUCTIONS:
        raise ValueError(f"a reduction must be one of {', '.join(_REDUCTIONS)}, not {name!r}.")
    return _REDUCTIONS[name]


def _copy_to_send(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(device_of_messages(tensor), copy=True)


# These are collectives of all workers, unless `ring_id` or `group` names a communicator of some.
def all_reduce(
    tensor: torch.Tensor,
    mode: str = "sum",
    ring_id: int = 0,
    *,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Return the reduced tensor, the same on all workers."""
    kind = reduction(mode)
    if not is_connected():
        return tensor.detach().clone()
    with heartbeat.collective("all-reduce"):
        group = group or ring(ring_id)
        result = _copy_to_send(tensor)
        dist.all_reduce(result, kind, group=group)
    return result.to(tensor.device)


def reduce(tensor: torch.Tensor, root: int, mode: str = "sum", ring_id: int = 0) -> torch.Tensor:
    """Return the reduced tensor on worker `root`, and the tensor itself on the others."""
    kind = reduction(mode)
    if not is_connected():
        return tensor.detach().clone()
    with heartbeat.collective("reduce"):
        group = ring(ring_id)
        result = _copy_to_send(tensor)
        dist.reduce(result, root, kind, group=group)
    # What the others are left with is not defined.
    return result.to(tensor.device) if rank() == root else tensor


def all_reduce_mean(
    tensors: Sequence[torch.Tensor], *, group: dist.ProcessGroup | None = None
) -> list[torch.Tensor]:
    """Return the means over all workers of tensors, with one message for each type."""
    return start_all_reduce_mean(tensors, group=group)()


def start_all_reduce_mean(
    tensors: Sequence[torch.Tensor], *, group: dist.ProcessGroup | None = None
) -> Callable[[], list[torch.Tensor]]:
    """Start to average tensors over all workers, with one message for each type; return a function
    that waits for the means and returns them."""
    started = []
    for dtype in dict.fromkeys(t.dtype for t in tensors) if is_connected() else ():
        places = [i for i, t in enumerate(tensors) if t.dtype is dtype]
        flat = torch.cat([tensors[i].detach().reshape(-1) for i in places])
        flat.div_(world_size() if group is None else group.size())
        sent = flat.to(device_of_messages(flat))
        with heartbeat.collective("all-reduce"):  # some groups finish before they return
            work = dist.all_reduce(sent, group=group or ring(0), async_op=True)
        started.append((places, sent, work))

    def finish() -> list[torch.Tensor]:
        means = list(tensors)
        for places, sent, work in started:
            with heartbeat.collective("all-reduce"):
                work.wait()
            sizes = [tensors[i].numel() for i in places]
            for i, part in zip(places, sent.split(sizes), strict=True):
                means[i] = part.view(tensors[i].shape).to(tensors[i].device)
        return means

    return finish


def broadcast(
    tensor: torch.Tensor,
    source: int = 0,
    ring_id: int = 0,
    *,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Return the tensor of worker `source` on all workers."""
    if not is_connected():
        return tensor.detach().clone()
    with heartbeat.collective("broadcast"):
        group = group or ring(ring_id)
        result = _copy_to_send(tensor)
        dist.broadcast(result, source, group=group)
    return result.to(tensor.device)


def all_gather(
    tensor: torch.Tensor, ring_id: int = 0, *, group: dist.ProcessGroup | None = None
) -> list[torch.Tensor]:
    """Return the tensors of all workers by rank; they must have the same shape."""
    if not is_connected():
        return [tensor.detach().contiguous().clone()]
    with heartbeat.collective("all-gather"):
        group = group or ring(ring_id)
        sent = tensor.detach().contiguous().to(device_of_messages(tensor))
        parts = [torch.empty_like(sent) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, sent, group=group)
    return [part.to(tensor.device) for part in parts]


def barrier() -> None:
    """Wait until all workers have reached this point."""
    if is_connected():
        with heartbeat.collective(heartbeat.BARRIER):
            dist.barrier(group=ring(0))
