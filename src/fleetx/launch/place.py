"""Which worker of which job a process is, whoever started it.

fleetrun and PaddleCloud say it with PADDLE_* variables, torchrun and the Kubeflow trainer with
RANK and WORLD_SIZE, mpirun and srun with variables of their own. The first that is complete
counts, in that order; a process that nobody started is worker 0 of 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from fleetx.launch import network

# Where a port must follow from the job's name because nobody agreed on one.
_PORTS = range(20000, 30000)


@dataclass(frozen=True)
class Place:
    """A worker's place in its job."""

    launcher: str
    """paddle, torch, openmpi, slurm, or none."""
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0
    node_num: int = 1
    endpoints: tuple[str, ...] = ()
    """All workers' endpoints by rank, where the launcher tells them (paddle)."""
    master: tuple[str, int] | None = None
    """Where rank 0 hosts the store of the process group; None when nobody said."""


def find_place(environment: Mapping[str, str]) -> Place:
    """Read the launcher's variables; ValueError in one sentence when they contradict each other."""
    if "PADDLE_TRAINER_ENDPOINTS" in environment:
        place = _paddle(environment)
    elif "RANK" in environment and "WORLD_SIZE" in environment:
        place = _torch(environment)
    elif "PADDLE_TRAINERS_NUM" in environment or "PADDLE_TRAINER_ID" in environment:
        place = _paddle(environment)
    elif "OMPI_COMM_WORLD_SIZE" in environment:
        place = _open_mpi(environment)
    elif "SLURM_STEP_NUM_TASKS" in environment and "SLURM_PROCID" in environment:
        place = _slurm(environment)
    else:
        return Place("none")
    if place.rank >= place.world_size:
        raise ValueError(
            f"The environment says rank {place.rank} of {place.world_size} workers "
            f"({place.launcher}): ranks count from 0."
        )
    return place


def _paddle(environment: Mapping[str, str]) -> Place:
    endpoints = tuple(e for e in environment.get("PADDLE_TRAINER_ENDPOINTS", "").split(",") if e)
    rank = count(environment, "PADDLE_TRAINER_ID", default=0, least=0)
    world = count(environment, "PADDLE_TRAINERS_NUM", default=len(endpoints) or 1, least=1)
    hosts = [endpoint.rpartition(":")[0] for endpoint in endpoints]
    own = hosts[rank] if rank < len(hosts) else ""
    nodes = list(dict.fromkeys(hosts))
    master = _named_master(environment)
    if master is None and endpoints:
        master = network.split_endpoint(endpoints[0])
    local = count(environment, "PADDLE_RANK_IN_NODE", hosts[:rank].count(own), least=0)
    return Place(
        launcher="paddle",
        rank=rank,
        world_size=world,
        local_rank=local,
        local_world_size=count(
            environment, "PADDLE_LOCAL_SIZE", default=hosts.count(own) or 1, least=1
        ),
        node_rank=count(environment, "NODE_RANK", nodes.index(own) if own else 0, least=0),
        node_num=count(environment, "PADDLE_NNODES", default=len(nodes) or 1, least=1),
        endpoints=endpoints,
        master=master,
    )


def _torch(environment: Mapping[str, str]) -> Place:
    rank = count(environment, "RANK", default=0, least=0)
    world = count(environment, "WORLD_SIZE", default=1, least=1)
    # The Kubeflow trainer's plain PyTorchJob gives no local numbers: one worker per machine.
    local_world = count(environment, "LOCAL_WORLD_SIZE", default=1, least=1)
    return Place(
        launcher="torch",
        rank=rank,
        world_size=world,
        local_rank=count(environment, "LOCAL_RANK", default=0, least=0),
        local_world_size=local_world,
        node_rank=count(environment, "GROUP_RANK", default=rank // local_world, least=0),
        node_num=count(environment, "GROUP_WORLD_SIZE", default=world // local_world, least=1),
        master=_named_master(environment),
    )


def _open_mpi(environment: Mapping[str, str]) -> Place:
    world = count(environment, "OMPI_COMM_WORLD_SIZE", default=1, least=1)
    local_world = count(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", default=1, least=1)
    rank = count(environment, "OMPI_COMM_WORLD_RANK", default=0, least=0)
    master = _named_master(environment)
    if master is None and local_world == world:
        job = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid", "")
        master = ("127.0.0.1", _port_of_job(environment, f"mpi {job}"))
    return Place(
        launcher="openmpi",
        rank=rank,
        world_size=world,
        local_rank=count(environment, "OMPI_COMM_WORLD_LOCAL_RANK", default=0, least=0),
        local_world_size=local_world,
        # Right where machines are filled one after the other, as mpirun does by default.
        node_rank=rank // local_world,
        node_num=-(-world // local_world),
        master=master,
    )


def _slurm(environment: Mapping[str, str]) -> Place:
    world = count(environment, "SLURM_STEP_NUM_TASKS", default=1, least=1)
    nodes = count(environment, "SLURM_STEP_NUM_NODES", default=1, least=1)
    per_node = _slurm_counts(environment.get("SLURM_STEP_TASKS_PER_NODE", ""))
    node = count(environment, "SLURM_NODEID", default=0, least=0)
    master = _named_master(environment)
    if master is None:
        job = f"{environment.get('SLURM_JOB_ID', '')}.{environment.get('SLURM_STEP_ID', '')}"
        first = "127.0.0.1"
        if nodes > 1:
            first = first_of_nodelist(environment.get("SLURM_STEP_NODELIST", ""))
        master = (first, _port_of_job(environment, f"slurm {job}"))
    return Place(
        launcher="slurm",
        rank=count(environment, "SLURM_PROCID", default=0, least=0),
        world_size=world,
        local_rank=count(environment, "SLURM_LOCALID", default=0, least=0),
        local_world_size=per_node[node] if node < len(per_node) else max(1, world // nodes),
        node_rank=node,
        node_num=nodes,
        master=master,
    )


def first_of_nodelist(nodes: str) -> str:
    """Return the first host of Slurm's list: `gpu[03-07,9],login1` begins with `gpu03`."""
    found = re.match(r"([^,\[]*)(?:\[([^\],-]*)[^\]]*\]([^,\[]*))?", nodes.strip())
    if not nodes.strip() or found is None:
        raise ValueError(
            f"SLURM_STEP_NODELIST is {nodes!r}, so rank 0's machine is unknown: set MASTER_ADDR."
        )
    return "".join(part or "" for part in found.groups())


def _slurm_counts(text: str) -> list[int]:
    """Read Slurm's `2(x3),1`: tasks per node."""
    counts = []
    for item in filter(None, text.split(",")):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", item)
        if found is None:
            raise ValueError(f"SLURM_STEP_TASKS_PER_NODE is {text!r}, which is no list of counts.")
        counts += [int(found.group(1))] * int(found.group(2) or 1)
    return counts


def _named_master(environment: Mapping[str, str]) -> tuple[str, int] | None:
    host = environment.get("MASTER_ADDR")
    if not host:
        return None
    return host, count(environment, "MASTER_PORT", default=29500, least=1)


def _port_of_job(environment: Mapping[str, str], job: str) -> int:
    port = _PORTS[crc32(job.encode()) % len(_PORTS)]
    return count(environment, "MASTER_PORT", default=port, least=1)


def count(environment: Mapping[str, str], variable: str, default: int, least: int) -> int:
    """Read a whole number from a variable; ValueError names the variable that holds none."""
    text = environment.get(variable, "").strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) < least:
        raise ValueError(
            f"The environment variable {variable} must be a whole number from {least} on, "
            f"but it is {text!r}."
        )
    return int(text)
