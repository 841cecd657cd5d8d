"""Role makers: the role of this process in a training job, and those of the others.

`PaddleCloudRoleMaker` reads it from the environment of any launcher (fleetrun, torchrun, srun,
mpirun, PaddleCloud); those that get it from the script are in `user_defined_role_maker.py`. The
role is determined on first use, or by `generate_role`.
"""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

import torch

from fleetx import comm
from fleetx.comm.device import device_of_worker
from fleetx.comm.role_groups import WORLDS, TrainingGroup, meet
from fleetx.fleet.roles import array_exchange
from fleetx.runtime import role_environment, worker_environment
from fleetx.runtime.elastic_environment import find_place
from fleetx.runtime.role_environment import Rendezvous, ServerJob
from fleetx.runtime.server_support import ServerSupport, detect_server_support
from fleetx.runtime.worker_environment import WorkerEnvironment


class Role(IntEnum):
    """The role of a process."""

    WORKER = 1
    SERVER = 2
    HETER_WORKER = 3
    ALL = 4


class RoleMakerBase:
    """The base of role makers; a subclass sets the attributes below in `_find_role`."""

    def __init__(self, is_collective: bool = False) -> None:
        self.is_collective = is_collective
        self._role: Role | int | None = None
        self._current_id = -1
        self._trainers_num = 0
        self._worker_endpoints: list[str] = []
        self._server_endpoints: list[str] = []
        self._heter_endpoints: list[str] = []
        self._role_is_generated = False
        self._non_distributed = False
        self._worker_environment: WorkerEnvironment | None = None
        self._groups: Mapping[str, array_exchange.Channel] = {}
        self._meet_workers: Callable[[], array_exchange.OwnChannel] | None = None

    def generate_role(self) -> None:
        """Determine the role of this process, once."""
        if not self._role_is_generated:
            self._find_role()
            self._role_is_generated = True
            self._join_groups()

    def _find_role(self) -> None:
        """Set the role of this process; the base class has none."""

    def _join_groups(self) -> None:
        """Connect to the other processes, if the role maker does so itself."""

    def _require_role(self) -> None:
        self.generate_role()
        if self._role is None:
            raise NotImplementedError(
                f"{type(self).__name__} does not determine the role of this process: use "
                "PaddleCloudRoleMaker, or UserDefinedRoleMaker with a role given by the script."
            )

    # -- this process -----------------------------------------------------------------
    def is_worker(self) -> bool:
        """Return whether this process trains."""
        self._require_role()
        return self._role == Role.WORKER

    def is_server(self) -> bool:
        """Return whether this process is a parameter server."""
        self._require_role()
        return self._role == Role.SERVER

    def is_heter_worker(self) -> bool:
        """Return whether this process computes a part of the workers' models."""
        self._require_role()
        return self._role == Role.HETER_WORKER

    def is_first_worker(self) -> bool:
        """Return whether this is worker 0."""
        return self.is_worker() and self.worker_index() == 0

    def worker_index(self) -> int:
        """Return the rank of this worker."""
        self._require_role()
        return self._current_id

    def take_place(self, rank: int, size: int) -> None:
        """Set a new rank and number of workers, as in the next generation of an elastic job."""
        self._current_id, self._trainers_num = rank, size

    def server_index(self) -> int:
        """Return the index of this server."""
        self._require_role()
        return self._current_id

    def role_id(self) -> int:
        """Return the index of this process among those of its role."""
        return self.worker_index() if self.is_worker() else self.server_index()

    def is_non_distributed(self) -> bool:
        """Return whether this process has no launcher and trains alone."""
        self.generate_role()
        return self._non_distributed

    # -- the other processes ----------------------------------------------------------
    def worker_num(self) -> int:
        """Return the number of workers."""
        self._require_role()
        return self._trainers_num

    def server_num(self) -> int:
        """Return the number of servers."""
        self._require_role()
        return len(self._server_endpoints)

    def heter_worker_num(self) -> int:
        """Return the number of processes that compute parts of the workers' models."""
        self._require_role()
        return len(self._heter_endpoints)

    def worker_endpoints(self) -> list[str]:
        """Return the addresses of the workers."""
        self.generate_role()
        return list(self._worker_endpoints)

    def server_endpoints(self) -> list[str]:
        """Return the addresses of the servers."""
        self.generate_role()
        return list(self._server_endpoints)

    def server_support(self) -> ServerSupport:
        """Return the keys of the job, and the folder of a server's state."""
        return detect_server_support()

    def node_num(self) -> int:
        """Return the number of machines with workers."""
        self._require_role()
        if self._worker_environment is not None:
            return self._worker_environment.node_count
        return len({endpoint.rsplit(":", 1)[0] for endpoint in self._worker_endpoints})

    def local_rank(self) -> int:
        """Return the rank of this worker on its machine."""
        return self.worker.local_rank

    @property
    def worker(self) -> WorkerEnvironment:
        """This worker's rank and the world size, for communication."""
        if not self.is_worker():
            raise RuntimeError("this process is not a worker, so it has no rank among them.")
        if self._worker_environment is None:
            endpoints = self.worker_endpoints()
            if endpoints:
                return worker_environment.from_endpoints(endpoints, self.worker_index())
            return WorkerEnvironment(rank=self.worker_index(), world_size=self.worker_num())
        return self._worker_environment

    def to_string(self) -> str:
        """Return the roles of this process and the others, in one line."""
        return (
            f"role: {self._role}, current_id: {self._current_id}, worker_endpoints: "
            f"{self._worker_endpoints}, server_endpoints: {self._server_endpoints}"
        )

    __str__ = to_string

    # -- communication -----------------------------------------------------------------
    def connect(
        self,
        *,
        timeout_seconds: float = 300.0,
        asked: Mapping[str, str] | None = None,
        later: bool = False,
    ) -> None:
        """Connect to the other workers of a collective job, unless they are connected.

        Args:
            timeout_seconds: how long to wait for workers that have not joined yet.
            asked: this worker's settings, which must be the same on all workers.
            later: connect at the first communication instead of now.
        """
        if self.is_collective:
            device = device_of_worker(self.local_rank())
            if not torch.distributed.is_initialized():
                torch.get_device_module(device).set_device(device)
            comm.connect(
                self.worker, device, timeout_seconds=timeout_seconds, asked=asked, later=later
            )

    def meet_workers_by(self, meet: Callable[[], array_exchange.OwnChannel]) -> None:
        """Set how the workers of a server job form a group when they first need one."""
        self._meet_workers = meet

    def _meet_at(self, rendezvous: Rendezvous) -> None:
        """Join the groups of a server job's processes."""
        self._keep_groups(
            meet(
                rendezvous,
                is_server=self.is_server(),
                index=self._current_id,
                worker_num=self._trainers_num,
                server_num=len(self._server_endpoints),
            )
        )

    def _keep_groups(self, groups: Mapping[str, array_exchange.OwnChannel]) -> None:
        self._groups = groups
        # A group whose threads still run at interpreter shutdown aborts the process; dropping it is
        # not enough if a traceback refers to it.
        for group in groups.values():
            atexit.register(group.close)

    def _channel(self, comm_world: str) -> array_exchange.Channel | None:
        """Return the group of a world; None in a parameter-server job without groups."""
        if comm_world not in WORLDS:
            raise ValueError(
                f"argument error, comm_world must in {list(WORLDS)}, not {comm_world!r}."
            )
        self._require_role()
        if self.is_collective and comm_world == "server":
            raise ValueError("a collective job has no servers: use comm_world='worker'.")
        if self.is_collective and find_place() is not None:
            raise RuntimeError(
                "barriers and reductions need all workers at one point of the script, but workers "
                "of an elastic job join and leave at any time: leave the call out, or start "
                "fleetrun without --elastic."
            )
        if self.is_collective or self._non_distributed:
            self.connect()
            return TrainingGroup()
        if comm_world == "worker" and not self._groups and self._meet_workers is not None:
            self._keep_groups({"worker": self._meet_workers()})
        if not self._groups:
            warnings.warn(
                "gloo is not initialized, will not communicator with other nodes: set "
                "PADDLE_WITH_GLOO to 1 or 2, and PADDLE_GLOO_RENDEZVOUS.",
                stacklevel=4,
            )
            return None
        if comm_world not in self._groups:
            way = "" if "all" in self._groups else "; PADDLE_WITH_GLOO=2 makes one of all processes"
            raise ValueError(
                f"this process is in the groups {sorted(self._groups)}, not in {comm_world!r}{way}."
            )
        return self._groups[comm_world]

    def all_gather(self, value: Any, comm_world: str = "worker") -> Any:
        """Return the numbers or arrays of all processes of a world, by rank."""
        channel = self._channel(comm_world)
        return value if channel is None else array_exchange.all_gather(channel, value)

    def all_reduce(self, value: Any, mode: str = "sum", comm_world: str = "worker") -> Any:
        """Return the sum, max or min of numbers or arrays over all processes of a world."""
        channel = self._channel(comm_world)
        return value if channel is None else array_exchange.all_reduce(channel, value, mode)

    def exchange(self, parcels: list[Any]) -> list[Any]:
        """Send one array of bytes to each worker; return the received ones, by rank."""
        channel = self._channel("worker")
        if channel is None:
            raise RuntimeError(
                "workers cannot exchange anything: call fleet.init_worker() first, or set "
                "PADDLE_WITH_GLOO to 1 and PADDLE_GLOO_RENDEZVOUS."
            )
        return array_exchange.exchange(channel, self.worker_index(), parcels)

    def all_reduce_worker(self, input: Any, output: Any, mode: str = "sum") -> None:
        """Reduce 1-D arrays or lists over all workers into `output`, in place."""
        output[:] = self.all_reduce(input, mode)

    def barrier(self, comm_world: str = "worker") -> None:
        """Wait until all processes of a world have reached this point."""
        channel = self._channel(comm_world)
        if channel is not None:
            channel.barrier()

    def barrier_worker(self) -> None:
        """Wait until all workers have reached this point."""
        self.barrier("worker")

    def barrier_all(self) -> None:
        """Wait until all workers and servers have reached this point."""
        self.barrier("all")


class PaddleCloudRoleMaker(RoleMakerBase):
    """Reads the role from the environment.

    A collective worker is found in the variables of fleetrun, torchrun, Slurm or MPI. A process of
    a parameter-server job is found in PADDLE_PSERVERS_IP_PORT_LIST and the variables with it.
    """

    _endpoints_decide = False  # see worker_environment.detect

    def _find_role(self) -> None:
        if self.is_collective:
            self._find_worker()
        else:
            self._find_in_server_job()

    def _find_worker(self) -> None:
        worker = worker_environment.detect(endpoints_decide=self._endpoints_decide)
        self._worker_environment = worker
        self._role = Role.WORKER
        self._current_id = worker.rank
        self._trainers_num = worker.world_size
        self._worker_endpoints = list(worker.endpoints)
        self._non_distributed = worker.launcher == "none"

    def _find_in_server_job(self) -> None:
        job = role_environment.detect_server_job()
        if job is None:
            self._role, self._current_id, self._trainers_num = Role.WORKER, 0, 1
            self._worker_environment = WorkerEnvironment()
            self._non_distributed = True
            return
        self._take_place(job)

    def _take_place(self, job: ServerJob) -> None:
        roles = {"TRAINER": Role.WORKER, "PSERVER": Role.SERVER}
        self._role = roles.get(job.role, Role.HETER_WORKER)
        self._current_id = job.index
        self._trainers_num = job.worker_num
        self._server_endpoints = list(job.server_endpoints)
        self._worker_endpoints = list(job.worker_endpoints)
        self._heter_endpoints = list(job.heter_endpoints)

    def _join_groups(self) -> None:
        first = self._worker_endpoints[0] if self.is_collective else ""
        rendezvous = role_environment.detect_rendezvous(first_worker=first)
        # Collective workers use the group of the training.
        if rendezvous is None or self.is_collective or self._non_distributed:
            return
        self._meet_at(rendezvous)
