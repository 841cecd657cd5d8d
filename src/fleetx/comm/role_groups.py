"""Process groups over which role makers reduce, gather and synchronise.

Workers of a collective job use the group that training uses. Workers and servers of a
parameter-server job have separate gloo groups if the environment enables them: one of the workers,
one of the servers, and one of all.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from fleetx import comm, torch_private
from fleetx.comm.device import device_of_messages
from fleetx.comm.world import reduction
from fleetx.runtime import heartbeat
from fleetx.runtime.role_environment import Rendezvous

WORLDS = ("worker", "server", "all")
_MEETING = datetime.timedelta(seconds=3600)


class TrainingGroup:
    """The group of all training workers; a single process if it is not connected."""

    def all_reduce(self, tensor: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the tensors of all workers reduced."""
        return comm.all_reduce(tensor, mode)

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all workers."""
        return comm.all_gather(tensor)

    def all_to_all(self, parts: list[torch.Tensor], sizes: list[int]) -> list[torch.Tensor]:
        """Send one part to each worker; return the received parts, of the given lengths."""
        if not comm.is_connected():
            return parts
        joined = torch.cat(parts)
        sent = joined.to(device_of_messages(joined))
        found = sent.new_empty(sum(sizes))
        dist.all_to_all_single(found, sent, sizes, [len(part) for part in parts])
        return list(found.cpu().split(sizes))

    def barrier(self) -> None:
        """Wait until all workers have reached this point."""
        comm.barrier()


class GlooGroup:
    """A gloo group that is independent of torch.distributed's default group."""

    def __init__(self, store: dist.Store, rank: int, size: int, address: str = "") -> None:
        """Join the group; others reach this process at `address` (default: gloo's choice)."""
        self._size = size
        if address:
            device = dist.ProcessGroupGloo.create_device(hostname=address)  # type: ignore[attr-defined]
            options = torch_private.gloo_options(device, _MEETING)
            self._group: Any = dist.ProcessGroupGloo(store, rank, size, options)
        else:
            self._group = dist.ProcessGroupGloo(store, rank, size, _MEETING)

    def all_reduce(self, tensor: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the tensors of all members reduced."""
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp(reduction(mode))
        result = tensor.clone()
        self._group.allreduce([result], options).wait()
        return result

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all members."""
        parts = [torch.empty_like(tensor) for _ in range(self._size)]
        self._group.allgather([parts], [tensor]).wait()
        return parts

    def all_to_all(self, parts: list[torch.Tensor], sizes: list[int]) -> list[torch.Tensor]:
        """Send one part to each member; return the received parts, of the given lengths."""
        found = torch.empty(sum(sizes), dtype=parts[0].dtype)
        lengths = [len(part) for part in parts]
        self._group.alltoall_base(
            found, torch.cat(parts), sizes, lengths, dist.AllToAllOptions()
        ).wait()
        return list(found.split(sizes))

    def barrier(self) -> None:
        """Wait until all members have reached this point."""
        with heartbeat.collective(heartbeat.BARRIER):
            self._group.barrier().wait()

    def close(self) -> None:
        """Stop the group's threads, even if a reference to this object remains (in a traceback)."""
        self._group = None


def meet(
    rendezvous: Rendezvous, *, is_server: bool, index: int, worker_num: int, server_num: int
) -> dict[str, GlooGroup]:
    """Return the groups of a process of a parameter-server job, keyed by the name of the world."""
    own, own_size = ("server", server_num) if is_server else ("worker", worker_num)
    places = {own: (index, own_size)}
    everybody = worker_num + server_num
    if rendezvous.everybody:
        places["all"] = (worker_num + index if is_server else index, everybody)
    listens = index == 0 and is_server != rendezvous.worker_listens
    shared = _address_store(rendezvous, listens) if rendezvous.endpoint else None
    groups = {}
    for world, (rank, size) in places.items():
        if shared is not None:
            store: dist.Store = dist.PrefixStore(f"{rendezvous.job}/{world}", shared)
        else:
            store = _folder_store(rendezvous, world, size)
        groups[world] = GlooGroup(store, rank, size)
    return groups


def _address_store(rendezvous: Rendezvous, listens: bool) -> dist.TCPStore:
    host, port = rendezvous.endpoint.rsplit(":", 1)
    return dist.TCPStore(
        host, int(port), is_master=listens, timeout=_MEETING, wait_for_workers=False
    )


def _folder_store(rendezvous: Rendezvous, world: str, size: int) -> dist.FileStore:
    folder = Path(rendezvous.folder) / rendezvous.job
    folder.mkdir(parents=True, exist_ok=True)
    return dist.FileStore(str(folder / world.upper()), size)
