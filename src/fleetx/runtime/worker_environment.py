"""This worker's rank and world size, for any launcher: fleetrun, torchrun, srun or mpirun.

Each launcher sets its own variables. They are read here, once, into one small record. PADDLE_*
takes precedence: fleetrun sets it besides torch's variables, and fleetrun may run inside a Slurm or
MPI job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetx.runtime import network
from fleetx.runtime.job_numbers import first_host, port_of_job, tasks_per_node

DEFAULT_PORT = 6170


@dataclass(frozen=True)
class WorkerEnvironment:
    """A worker's place among all workers of a job."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    endpoints: tuple[str, ...] = ("127.0.0.1:6170",)  # "ip:port" of every worker, by rank
    master: str = "127.0.0.1:6170"  # the rendezvous address
    launcher: str = "none"
    node_count: int = 1
    store_is_kept: bool = False  # the launcher listens at `master`, not worker 0

    @property
    def current_endpoint(self) -> str:
        """This worker's own address."""
        return self.endpoints[self.rank] if self.rank < len(self.endpoints) else ""


def detect(
    environ: Mapping[str, str] | None = None, *, endpoints_decide: bool = False
) -> WorkerEnvironment:
    """Read the environment; without a launcher, this is worker 0 of 1.

    `endpoints_decide` makes the number of addresses the number of workers, regardless of
    PADDLE_TRAINERS_NUM, as Paddle does; otherwise they must match.
    """
    env = os.environ if environ is None else environ
    if endpoints_decide and env.get("PADDLE_TRAINER_ENDPOINTS"):
        env = {name: value for name, value in env.items() if name != "PADDLE_TRAINERS_NUM"}
    if env.get("PADDLE_TRAINER_ENDPOINTS") or _number(env, "PADDLE_TRAINERS_NUM", 1) > 1:
        return _from_paddle(env)
    if "RANK" in env and "WORLD_SIZE" in env:
        return _from_torch(env)
    if "OMPI_COMM_WORLD_RANK" in env:
        return _from_mpi(
            env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"
        )
    # A step with one task may be an interactive shell, in which other launchers are used.
    if "SLURM_PROCID" in env and "SLURM_STEP_ID" in env and _slurm_size(env) > 1:
        return _from_slurm(env)
    if "PMI_RANK" in env and "PMI_SIZE" in env:
        return _from_mpi(env, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID")
    return WorkerEnvironment()


def use_interface_towards_master(worker: WorkerEnvironment) -> None:
    """Make Gloo and NCCL use the network interface of the rendezvous, unless the user chose one.

    By default Gloo uses the interface that the machine's own name resolves to, often the loopback.
    """
    if worker.node_count > 1:
        interface = network.interface_towards(network.split_endpoint(worker.master)[0])
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            if interface is not None:
                os.environ.setdefault(variable, interface)  # read by torch


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name, "").strip()
    if not text:
        if default is None:
            raise ValueError(f"The environment variable {name} is required, but it is not set.")
        return default
    if not re.fullmatch(r"\d+", text):
        raise ValueError(f"The environment variable {name} must be a whole number, not {text!r}.")
    return int(text)


def _rank(env: Mapping[str, str], name: str, size: int, default: int | None = None) -> int:
    rank = _number(env, name, default)
    check_index(name, rank, size)
    return rank


def check_index(variable: str, index: int, workers: int) -> None:
    """Reject a worker index that the job does not have."""
    if index >= workers:
        count = f"{workers} workers (0 to {workers - 1})" if workers > 1 else "1 worker (0)"
        raise ValueError(f"{variable}: worker index {index} is out of range: the job has {count}.")


def check_endpoints(variable: str, endpoints: Sequence[str]) -> None:
    """Reject a list with an invalid address."""
    for endpoint in endpoints:
        try:
            network.split_endpoint(endpoint)
        except ValueError as error:
            raise ValueError(f"{variable}: {error}, with a port from 1 to 65535.") from None


def _from_paddle(env: Mapping[str, str]) -> WorkerEnvironment:
    endpoints = tuple(e for e in env.get("PADDLE_TRAINER_ENDPOINTS", "").split(",") if e)
    size = _number(env, "PADDLE_TRAINERS_NUM", len(endpoints) or 1)
    if endpoints and size != len(endpoints):
        raise ValueError(
            f"PADDLE_TRAINERS_NUM is {size}, but PADDLE_TRAINER_ENDPOINTS lists {len(endpoints)} "
            "workers."
        )
    check_endpoints("PADDLE_TRAINER_ENDPOINTS", endpoints)
    rank = _rank(env, "PADDLE_TRAINER_ID", size, 0)
    hosts = [e.rsplit(":", 1)[0] for e in endpoints]
    mine = hosts[rank] if rank < len(hosts) else ""
    master = endpoints[0] if endpoints else f"127.0.0.1:{DEFAULT_PORT}"
    if env.get("MASTER_ADDR") and env.get("MASTER_PORT"):
        master = f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    return WorkerEnvironment(
        rank,
        size,
        _number(env, "PADDLE_RANK_IN_NODE", hosts[:rank].count(mine)),
        hosts.count(mine) or 1,
        endpoints or (master,),
        master,
        "paddle",
        len(set(hosts)) or 1,
        _store_is_kept(env),
    )


def _store_is_kept(env: Mapping[str, str]) -> bool:
    """Return whether torchrun itself listens at MASTER_ADDR and MASTER_PORT."""
    return env.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and "MASTER_ADDR" in env


def _from_torch(env: Mapping[str, str]) -> WorkerEnvironment:
    size = _number(env, "WORLD_SIZE")
    local_size = _number(env, "LOCAL_WORLD_SIZE", 1)
    host = env.get("MASTER_ADDR", "127.0.0.1")
    master = f"{host}:{_number(env, 'MASTER_PORT', DEFAULT_PORT)}"
    return WorkerEnvironment(
        _rank(env, "RANK", size),
        size,
        _number(env, "LOCAL_RANK", 0),
        local_size,
        _invented_endpoints(host, size),
        master,
        "torch",
        _number(env, "GROUP_WORLD_SIZE", max(1, size // max(1, local_size))),
        _store_is_kept(env),
    )


def _from_mpi(env: Mapping[str, str], rank: str, size: str, local_rank: str) -> WorkerEnvironment:
    count = _number(env, size)
    local_size = _number(env, "OMPI_COMM_WORLD_LOCAL_SIZE", _number(env, "MPI_LOCALNRANKS", count))
    host = env.get("MASTER_ADDR", "127.0.0.1")
    if local_size < count and "MASTER_ADDR" not in env:
        raise ValueError(
            "mpirun started workers on several machines; give the rendezvous address: "
            "mpirun -x MASTER_ADDR=<ip of rank 0> ..."
        )
    # Open MPI names every job; two jobs on one machine must not mix.
    job = env.get("PMIX_NAMESPACE", "")
    port = _number(env, "MASTER_PORT", port_of_job("mpi", job) if job else DEFAULT_PORT)
    nodes = _number(env, "OMPI_MCA_orte_num_nodes", -(-count // max(1, local_size)))
    return WorkerEnvironment(
        _rank(env, rank, count),
        count,
        _number(env, local_rank, 0),
        local_size,
        _invented_endpoints(host, count),
        f"{host}:{port}",
        "mpi",
        max(1, nodes),
    )


def _from_slurm(env: Mapping[str, str]) -> WorkerEnvironment:
    size = _slurm_size(env)
    nodes = _number(env, "SLURM_STEP_NUM_NODES", _number(env, "SLURM_NNODES", 1))
    listed = env.get("SLURM_STEP_NODELIST", env.get("SLURM_NODELIST", "127.0.0.1"))
    # A machine may be unable to resolve the name that Slurm uses for it.
    found = first_host(listed) if nodes > 1 else "127.0.0.1"
    host = env.get("MASTER_ADDR") or found
    job = port_of_job("slurm", env.get("SLURM_JOB_ID", ""), env.get("SLURM_STEP_ID", ""))
    return WorkerEnvironment(
        _rank(env, "SLURM_PROCID", size),
        size,
        _number(env, "SLURM_LOCALID", 0),
        _slurm_local_size(env, size, nodes),
        _invented_endpoints(host, size),
        f"{host}:{_number(env, 'MASTER_PORT', job)}",
        "slurm",
        nodes,
    )


def _slurm_size(env: Mapping[str, str]) -> int:
    return _number(env, "SLURM_STEP_NUM_TASKS", _number(env, "SLURM_NTASKS", 1))


def _slurm_local_size(env: Mapping[str, str], size: int, nodes: int) -> int:
    listed = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE")
    if not listed:
        return max(1, size // nodes)
    counts, node = tasks_per_node(listed), _number(env, "SLURM_NODEID", 0)
    if node >= len(counts):
        raise ValueError(
            f"SLURM_NODEID is {node}, but SLURM_STEP_TASKS_PER_NODE {listed!r} describes "
            f"{len(counts)} machines (counted from 0)."
        )
    return counts[node]


def _invented_endpoints(host: str, size: int) -> tuple[str, ...]:
    """Return placeholder addresses: only fleetrun knows the real ones, and only the master's is
    used."""
    return tuple(f"{host}:{DEFAULT_PORT + i}" for i in range(size))


def from_endpoints(
    endpoints: Sequence[str], rank: int, launcher: str = "user"
) -> WorkerEnvironment:
    """Return the place of worker `rank` among workers at the given addresses."""
    if not 0 <= rank < len(endpoints):
        raise ValueError(f"this worker has rank {rank}, but there are {len(endpoints)} addresses.")
    hosts = [endpoint.rsplit(":", 1)[0] for endpoint in endpoints]
    return WorkerEnvironment(
        rank,
        len(endpoints),
        hosts[:rank].count(hosts[rank]),
        hosts.count(hosts[rank]),
        tuple(endpoints),
        endpoints[0],
        launcher,
        len(set(hosts)),
    )
