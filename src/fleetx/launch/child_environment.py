"""The environment of a worker: Fleet's PADDLE_* variables, and torch's, as torchrun sets them."""

from __future__ import annotations

from collections.abc import Mapping

from fleetx.launch.job_layout import Cluster
from fleetx.launch.job_plan import JobPlan
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


def started_from(base: Mapping[str, str]) -> dict[str, str]:
    """Return the base environment of a worker or server.

    It contains no proxies and makes a process that dies from a fatal signal write its Python stack.
    """
    kept = {name: value for name, value in base.items() if name not in _PROXIES}
    return {"PYTHONFAULTHANDLER": "1", **kept}


def worker_environment(
    job: JobPlan, cluster: Cluster, local_rank: int, attempt: int
) -> dict[str, str]:
    """Return the variables of worker `local_rank` of this machine, on top of the inherited ones."""
    options, devices = job.options, job.devices
    result = started_from(job.environment)
    result.update(_paddle(job, cluster, local_rank))
    result.update(_torch(job, cluster, local_rank, attempt))
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
    result.update(job.measuring())
    result.pop(environment.SHARED_MEMORY, None)
    if options.backend in (None, "auto") and not options.elastic and not devices.on_gpu:
        result[environment.SHARED_MEMORY] = "1"
    result["FLEETX_HEARTBEAT"] = f"{job.scratch}/heartbeat.{local_rank}"
    return result


def _paddle(job: JobPlan, cluster: Cluster, local_rank: int) -> dict[str, str]:
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
        "PADDLE_WITH_GLOO": job.options.with_gloo,
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_FS_PATH": str(job.scratch),
    }
    if job.options.backend:
        variables["PADDLE_DISTRI_BACKEND"] = job.options.backend
    return variables


def _torch(job: JobPlan, cluster: Cluster, local_rank: int, attempt: int) -> dict[str, str]:
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
        "TORCHELASTIC_RUN_ID": job.options.job_id,
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(job.options.max_restart),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
