"""The group of a server job's workers, for what they exchange among themselves.

Training needs none: gradients go to servers. Samples that are shuffled between workers and metrics
over all workers do. Worker 0 opens a meeting place and tells its address through the servers, so
that any role maker will do.
"""

from __future__ import annotations

import datetime

import torch.distributed as dist

from fleetx.fleet.role_groups import GlooGroup
from fleetx.launch import network
from fleetx.ps.client import Client

_PATIENCE = datetime.timedelta(seconds=300)


def meet_through_servers(client: Client, server_endpoint: str) -> GlooGroup:
    """Meet all workers of the job; all of them must call it.

    Args:
        client: this worker's connection to the servers.
        server_endpoint: the address of a server; workers listen where they are seen from there.
    """
    server, _ = network.split_endpoint(server_endpoint)
    host = network.address_towards(server) or network.resolve(server) or "127.0.0.1"
    store = None
    note: dict[str, object] = {"rank": client.worker}
    if client.worker == 0:
        store = dist.TCPStore(host, 0, is_master=True, timeout=_PATIENCE, wait_for_workers=False)
        note["address"] = [host, store.port]
    notes = client.gather(note)
    if len(notes) < client.workers:
        gone = next(number for number in range(client.workers) if number not in notes)
        raise RuntimeError(f"worker {gone} has finished: it can exchange nothing any more.")
    if store is None:
        meeting, port = notes[0]["address"]
        store = dist.TCPStore(meeting, port, is_master=False, timeout=_PATIENCE)
    return GlooGroup(store, client.worker, client.workers, host)
