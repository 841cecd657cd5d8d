"""The servers and workers of a server job that run on this machine.

Lists of addresses (--servers, --workers) name every process of the job; numbers (--server_num,
--worker_num) give the count of each per machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fleetx.launch.arguments import Options
from fleetx.launch.devices import Devices, visible_gpus
from fleetx.launch.job_layout import Site, endpoints_from, find_site, host_of_list
from fleetx.launch.launch_errors import LaunchError
from fleetx.launch.server_arguments import ServerOptions
from fleetx.runtime import network

# Fleet's first port for workers without a listed port, assigned after the servers' ports.
_FIRST_WORKER_PORT = 6170


def find_server_site(options: Options, environment: Mapping[str, str]) -> tuple[Site, Devices]:
    """Determine which machine of which server job this is, and the devices of its workers."""
    job = options.server_job
    assert job is not None
    if job.servers or job.workers:
        return _listed_site(options, job, environment)
    devices = _devices(job.worker_num, options, environment)
    site = find_site(options, devices, environment)
    site = replace(
        site,
        endpoints=(),
        started_port=site.started_port or options.started_port,
        server_count=job.server_num,
    )
    if site.host is None or site.started_port is None:
        return site, devices
    # Checked now: one of them may be the rendezvous address, which is in use from then on.
    found = endpoints_from(site.host, site.started_port, job.server_num + job.worker_num)
    servers, workers = found[: job.server_num], found[job.server_num :]
    return replace(site, servers=servers, endpoints=workers), devices


def _listed_site(
    options: Options, job: ServerOptions, environment: Mapping[str, str]
) -> tuple[Site, Devices]:
    servers, workers = _all_endpoints(options, job)
    hosts = list(dict.fromkeys(_host(endpoint) for endpoint in (*servers, *workers)))
    host = hosts[0]
    if len(hosts) > 1:
        named = options.host or environment.get("POD_IP")
        host = host_of_list(hosts, named, "--servers and --workers")
    mine = [endpoint for endpoint in workers if _host(endpoint) == host]
    served = [endpoint for endpoint in servers if _host(endpoint) == host]
    busy = [e for e in (*served, *mine) if network.port_in_use(*network.split_endpoint(e))]
    if busy:
        raise LaunchError(
            f"{', '.join(busy)} is in use: end what listens there, or choose another port in "
            "--servers or --workers, the same on all machines."
        )
    site = Site(
        node_count=len(hosts),
        node_rank=hosts.index(host),
        host=host,
        hosts=tuple(hosts),
        endpoints=tuple(mine),
        # The first server's address: known to all, and not yet in use.
        meeting=network.split_endpoint(servers[0]) if len(hosts) > 1 else None,
        server_count=len(served),
        servers=tuple(served),
        listed=(*servers, *workers),
    )
    return site, _devices(len(mine), options, environment)


def _all_endpoints(options: Options, job: ServerOptions) -> tuple[list[str], list[str]]:
    """Return the addresses of all servers and workers, adding those given only by a number."""
    known = [*job.servers, *job.workers]
    hosts = {_host(item) for item in known}
    if len(hosts) > 1 and not (job.servers and job.workers):
        given, other = ("servers", "workers") if job.servers else ("workers", "servers")
        raise LaunchError(f"--{given} names several machines: list the others with --{other} too.")
    # One machine: a role without a list runs there, too.
    (only,) = hosts if len(hosts) == 1 else {""}
    if only and not network.is_local(only):
        raise LaunchError(
            f"--servers and --workers name only {only}, which is not an address of this machine."
        )
    ports = iter(network.free_ports(job.server_num + job.worker_num, only)) if only else iter(())
    servers = list(job.servers) or [
        network.join_endpoint(only, next(ports)) for _ in range(job.server_num)
    ]
    if not job.workers:
        return servers, [network.join_endpoint(only, next(ports)) for _ in range(job.worker_num)]
    first = (options.started_port or _FIRST_WORKER_PORT) + len(servers)
    workers = [
        item if _has_port(item) else network.join_endpoint(item.strip("[]"), first + i)
        for i, item in enumerate(job.workers)
    ]
    return servers, workers


def _has_port(item: str) -> bool:
    return ":" in item.rpartition("]")[2]


def _host(item: str) -> str:
    return network.split_endpoint(item)[0] if _has_port(item) else item.strip("[]")


def _devices(workers: int, options: Options, environment: Mapping[str, str]) -> Devices:
    """Assign GPUs to workers round-robin, each visible as device 0; servers need none."""
    present = visible_gpus(environment)
    chosen = [item.strip() for item in (options.gpus or "").split(",") if item.strip()] or present
    unknown = [gpu for gpu in chosen if gpu not in present]
    if unknown and present:
        raise LaunchError(
            f"--gpus names GPU {', '.join(unknown)}, but this machine offers {', '.join(present)}."
        )
    return Devices(
        shares=tuple(("0",) for _ in range(workers)),
        on_gpu=bool(present),
        visible=",".join(chosen) if present else None,
    )
