"""Server jobs under mpirun: every even rank is a server, every odd one a worker.

Ranks exchange addresses, free ports and the job's keys through MPI, and role makers' reductions and
barriers use it. Requires mpi4py (the extra `mpi`).
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fleetx.fleet.roles.role_maker import PaddleCloudRoleMaker, Role, RoleMakerBase
from fleetx.ps.wire.security import make_keys
from fleetx.runtime import network, role_environment, worker_environment
from fleetx.runtime.server_support import ServerSupport, detect_server_support


class MPISymetricRoleMaker(RoleMakerBase):
    """Servers and workers in equal number, side by side on every machine (the name is Paddle's)."""

    def __init__(self) -> None:
        super().__init__(is_collective=False)
        self._mpi = _load_mpi()
        self._support: ServerSupport | None = None

    def _find_role(self) -> None:
        everybody = self._mpi.COMM_WORLD
        rank, size = everybody.Get_rank(), everybody.Get_size()
        if size % 2:
            raise ValueError(
                f"mpirun started {size} processes, but MPISymetricRoleMaker makes servers and "
                "workers in pairs: start an even number."
            )
        host = _own_address(everybody.allgather(socket.gethostname()))
        with _reserved(host) as port:  # held until every rank has another one
            endpoints = everybody.allgather(network.join_endpoint(host, port))
        is_server = rank % 2 == 0
        self._role = Role.SERVER if is_server else Role.WORKER
        self._current_id = rank // 2
        self._trainers_num = size // 2
        self._server_endpoints, self._worker_endpoints = endpoints[::2], endpoints[1::2]
        own = MpiGroup(self._mpi, everybody.Split(int(not is_server), rank))
        self._groups = {
            "server" if is_server else "worker": own,
            "all": MpiGroup(self._mpi, everybody),
        }
        self._support = self._agree_on_keys(everybody)

    def _agree_on_keys(self, everybody: Any) -> ServerSupport:
        support = detect_server_support()
        keys = None if support.keys is None else dict(support.keys)
        if keys is None and not support.allow_insecure:
            made = make_keys().to_dict() if everybody.Get_rank() == 0 else None
            keys = everybody.bcast(made)
            if self._role != Role.SERVER:
                keys["server_secret"] = ""
        return replace(support, keys=keys)

    def server_support(self) -> ServerSupport:
        """Return the keys that the ranks have agreed on, and the settings of the environment."""
        self.generate_role()
        assert self._support is not None
        return self._support


class MpiGroup:
    """A group of ranks that exchange tensors."""

    def __init__(self, mpi: Any, comm: Any) -> None:
        self._mpi = mpi
        self._comm = comm

    def all_reduce(self, tensor: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the tensors of all members reduced."""
        operations = {"sum": self._mpi.SUM, "max": self._mpi.MAX, "min": self._mpi.MIN}
        if mode not in operations:
            raise ValueError(f"unknown mode: {mode!r}; use sum, max or min.")
        mine = np.ascontiguousarray(tensor.numpy())
        result = np.empty_like(mine)
        self._comm.Allreduce(mine, result, op=operations[mode])
        return torch.from_numpy(result)

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all members."""
        mine = np.ascontiguousarray(tensor.numpy())
        found = np.empty((self._comm.Get_size(), *mine.shape), mine.dtype)
        self._comm.Allgather(mine, found)
        return list(torch.from_numpy(found).unbind(0))

    def all_to_all(self, parts: list[torch.Tensor], sizes: list[int]) -> list[torch.Tensor]:
        """Send one part to each member; return the received parts, of the given lengths."""
        mine = np.concatenate([part.numpy() for part in parts])
        found = np.empty(sum(sizes), mine.dtype)
        lengths = [len(part) for part in parts]
        self._comm.Alltoallv([mine, lengths], [found, list(sizes)])
        return list(torch.from_numpy(found).split(list(sizes)))

    def barrier(self) -> None:
        """Wait until all members have reached this point."""
        self._comm.Barrier()


def default_role_maker(is_collective: bool) -> RoleMakerBase:
    """Return the default role maker: MPI's under mpirun, otherwise the environment's.

    Variables of a server job, and `is_collective`, take precedence.
    """
    if is_collective or role_environment.detect_server_job() or not started_by_mpirun():
        return PaddleCloudRoleMaker(is_collective=is_collective)
    return MPISymetricRoleMaker()


def check_mpirun() -> None:
    """Reject a process without a role maker that mpirun did not start."""
    if not started_by_mpirun():
        raise ValueError(
            "fleet.init() was given no role maker, and without mpirun it cannot determine the "
            "role of this process: use fleet.init(PaddleCloudRoleMaker()) in a script that "
            "fleetrun starts, or fleet.init(UserDefinedRoleMaker(current_id, role, worker_num, "
            "server_endpoints))."
        )


def started_by_mpirun() -> bool:
    """Return whether this process is one of several that mpirun started."""
    worker = worker_environment.detect()
    return worker.launcher == "mpi" and worker.world_size > 1


def _load_mpi() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ModuleNotFoundError(
            "a server job under mpirun needs mpi4py: pip install 'fleetx[mpi]' (or call "
            "fleet.init(is_collective=True) for collective training, or give fleet.init a role "
            f"maker); {error}."
        ) from error
    return MPI


def _own_address(names: list[str]) -> str:
    """Return the address at which the other machines of these names reach this one."""
    own = socket.gethostname()
    others = [name for name in names if name != own]
    if not others:
        return "127.0.0.1"
    found = network.address_towards(others[0])
    if found is None:
        raise ValueError(
            f"this machine ({own}) does not know the address of {others[0]}, on which other ranks "
            "run: enter its name in /etc/hosts or in the name server."
        )
    return found


@contextlib.contextmanager
def _reserved(host: str) -> Any:
    """Reserve a free port of this machine."""
    while True:
        (port,) = network.free_ports(1, host)
        try:
            listener = network.listen(host, port)
        except OSError:  # another rank took the port
            continue
        with listener:
            yield port
        return
