"""The environment of a worker: Fleet's PADDLE_* variables, and torch's, as torchrun sets them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fleetx.launch.devices import Devices
from fleetx.launch.job_layout import Cluster
from fleetx.runtime import environment, network

# Removed from a worker's environment: a proxy between workers makes them wait forever.
_PROXIES = ("http_proxy", "https_proxy")
# The rows of the environment table, in the order of Fleet's documents.
TABLE = (
    "PADDLE_CURRENT_ENDPOINT",
    "PADDLE_TRAINERS_NUM",
    "PADDLE_TRAINER_ENDPOINTS",
    "FLAGS_selected_gpus",
    "PADDLE_TRAINER_ID",
    "MASTER_ADDR",
    "MASTER_PORT",
)


@dataclass(frozen=True)
class Extras:
    """Settings of a worker other than its place in the job."""

    run_id: str
    attempt: int
    max_restart: int
    scratch: str
    """The scratch folder of this job on this machine, removed when the job ends."""
    backend: str | None = None
    shares_memory: bool = False
    """Whether CPU workers may use shared memory where they can."""
    with_gloo: str = "0"
    log_dir: str | None = None
    """Where workers write their measurements; None to disable them."""


def measuring(scratch: str, log_dir: str | None) -> dict[str, str]:
    """Return the variables that tell a worker where to write its measurements."""
    if log_dir is None:
        return {}
    # The name of the scratch folder is unique to the job.
    return {"FLEETX_LOG_DIR": os.path.abspath(log_dir), "FLEETX_RUN": os.path.basename(scratch)}


def started_from(base: Mapping[str, str]) -> dict[str, str]:
    """Return the base environment of a worker or server.

    It contains no proxies and makes a process that dies from a fatal signal write its Python stack.
    """
    kept = {name: value for name, value in base.items() if name not in _PROXIES}
    return {"PYTHONFAULTHANDLER": "1", **kept}


def worker_environment(
    base: Mapping[str, str], cluster: Cluster, devices: Devices, local_rank: int, extras: Extras
) -> dict[str, str]:
    """Return the variables of worker `local_rank` of this machine, on top of `base`."""
    result = started_from(base)
    result.update(_paddle(cluster, local_rank, extras))
    result.update(_torch(cluster, local_rank, extras))
    # Hosts that find each other by --ips must not be resolved by hostname again.
    interface = network.interface_of(cluster.here.host)
    if interface is not None:
        result.setdefault("GLOO_SOCKET_IFNAME", interface)
        if len(cluster.nodes) > 1:
            result.setdefault("NCCL_SOCKET_IFNAME", interface)
    if len(devices.shares) > 1:
        result.setdefault("OMP_NUM_THREADS", "1")
    if devices.visible is not None:
        result["CUDA_VISIBLE_DEVICES"] = devices.visible
    result["FLAGS_selected_gpus"] = ",".join(devices.shares[local_rank])
    result.update(measuring(extras.scratch, extras.log_dir))
    result.pop(environment.SHARED_MEMORY, None)
    if extras.shares_memory and not devices.on_gpu:
        result[environment.SHARED_MEMORY] = "1"
    result["FLEETX_HEARTBEAT"] = f"{extras.scratch}/heartbeat.{local_rank}"
    return result


def _paddle(cluster: Cluster, local_rank: int, extras: Extras) -> dict[str, str]:
    here, endpoints = cluster.here, cluster.endpoints
    rank = cluster.first_rank(cluster.this) + local_rank
    variables = {
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(len(endpoints)),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "PADDLE_RANK_IN_NODE": str(local_rank),
        "PADDLE_LOCAL_DEVICE_IDS": here.devices[local_rank],
        "PADDLE_WORLD_DEVICE_IDS": ",".join(d for node in cluster.nodes for d in node.devices),
        "PADDLE_GLOBAL_RANK": str(rank),
        "PADDLE_GLOBAL_SIZE": str(len(endpoints)),
        "PADDLE_LOCAL_RANK": str(local_rank),
        "PADDLE_LOCAL_SIZE": str(len(here.endpoints)),
        "PADDLE_NNODES": str(len(cluster.nodes)),
        "PADDLE_MASTER": network.join_endpoint(*cluster.master),
        "PADDLE_WITH_GLOO": extras.with_gloo,
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_FS_PATH": extras.scratch,
    }
    if extras.backend:
        variables["PADDLE_DISTRI_BACKEND"] = extras.backend
    return variables


def _torch(cluster: Cluster, local_rank: int, extras: Extras) -> dict[str, str]:
    rank, world = cluster.first_rank(cluster.this) + local_rank, len(cluster.endpoints)
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(len(cluster.here.endpoints)),
        "NODE_RANK": str(cluster.this),
        "GROUP_RANK": str(cluster.this),
        "GROUP_WORLD_SIZE": str(len(cluster.nodes)),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world),
        "MASTER_ADDR": cluster.master[0],
        "MASTER_PORT": str(cluster.master[1]),
        # Frameworks that check whether torchrun started them find its variables; the last
        # line states that rank 0 hosts the store itself.
        "TORCHELASTIC_RUN_ID": extras.run_id,
        "TORCHELASTIC_RESTART_COUNT": str(extras.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(extras.max_restart),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
