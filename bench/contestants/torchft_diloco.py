"""torchft's DiLoCo as a peer of LocalSGD: each worker is a replica group."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo

_PATIENCE = timedelta(minutes=10)
_KEPT: dict[str, Any] = {}
"""The lighthouse of rank 0, and the store and manager of this worker, created once per process."""


def own_address() -> str:
    """Return this machine's address towards rank 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], 9))
        found: str = probe.getsockname()[0]
    return found


def lighthouse(workers: int) -> str:
    """Return the address of the job's lighthouse, which rank 0 starts."""
    if "lighthouse" not in _KEPT:
        told = [""]
        if dist.get_rank() == 0:
            _KEPT["server"] = LighthouseServer(bind="0.0.0.0:0", min_replicas=workers)
            port = _KEPT["server"].address().rpartition(":")[2]
            told = [f"http://{os.environ['MASTER_ADDR']}:{port}"]
        dist.broadcast_object_list(told)
        _KEPT["lighthouse"] = told[0]
    address: str = _KEPT["lighthouse"]
    return address


def wrap(
    net: nn.Module, inner: torch.optim.Optimizer, outer: torch.optim.Optimizer, task: dict[str, Any]
) -> DiLoCo:
    """Average a network every `k` steps of its optimizer, with `delay` steps of overlap."""
    rank, workers = dist.get_rank(), dist.get_world_size()
    address = lighthouse(workers)
    host = own_address()
    if "manager" in _KEPT:
        _KEPT.pop("manager").shutdown()
    store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=_PATIENCE),
        load_state_dict=net.load_state_dict,
        state_dict=net.state_dict,
        min_replica_size=workers,
        use_async_quorum=False,
        init_sync=False,
        timeout=_PATIENCE,
        quorum_timeout=_PATIENCE,
        connect_timeout=_PATIENCE,
        rank=0,
        world_size=1,
        store_addr=host,
        store_port=store.port,
        lighthouse_addr=address,
        replica_id=f"worker{rank}",
        hostname=host,
    )
    _KEPT.update(manager=manager, store=store)
    diloco = DiLoCo(
        manager, [net], inner, outer, sync_every=task["k"], fragment_sync_delay=task["delay"]
    )
    diloco.__enter__()  # never exited: the network is trained once
    return diloco
