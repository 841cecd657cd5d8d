"""The layout of a job: its machines, their workers, and their addresses.

`Site` is what one machine knows from its own flags and environment; `Cluster` is the whole job,
known immediately on a single machine and after the rendezvous on several (`meeting.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleetx.launch.arguments import Options
from fleetx.launch.devices import Devices
from fleetx.launch.elastic_arguments import etcd_endpoints
from fleetx.launch.launch_errors import LaunchError
from fleetx.runtime import network

# Fleet's first port if the machines must agree on ports without communicating.
_FIRST_PORT = 6070
_FIRST_CLOUD_PORT = 6170
# PaddleCloud's variables; if all four are set, it started this process.
_CLOUD = ("PADDLE_TRAINERS", "POD_IP", "PADDLE_TRAINER_ID", "TRAINER_PORTS_NUM")


@dataclass(frozen=True)
class Node:
    """One machine of a job."""

    host: str
    endpoints: tuple[str, ...]
    devices: tuple[str, ...]
    """The comma-separated devices of each worker."""
    servers: tuple[str, ...] = ()
    """The addresses of its parameter servers."""


@dataclass(frozen=True)
class Cluster:
    """A whole job, as seen from machine number `this`."""

    nodes: tuple[Node, ...]
    this: int
    master: tuple[str, int]
    """The rendezvous of the workers' process group: torch's MASTER_ADDR and MASTER_PORT."""
    listed: tuple[str, ...] = ()
    """All servers and workers in the order of the flags, if the flags list them."""
    keys: Mapping[str, str] | None = field(default=None, repr=False)
    """The keys of a job with servers."""

    @property
    def here(self) -> Node:
        """Return the node of this machine."""
        return self.nodes[self.this]

    @property
    def endpoints(self) -> list[str]:
        """List the endpoints of all workers by rank."""
        return self._ordered(endpoint for node in self.nodes for endpoint in node.endpoints)

    @property
    def servers(self) -> list[str]:
        """List the endpoints of all servers by number."""
        return self._ordered(endpoint for node in self.nodes for endpoint in node.servers)

    def _ordered(self, endpoints: Iterable[str]) -> list[str]:
        return sorted(endpoints, key=self.listed.index) if self.listed else list(endpoints)

    def first_rank(self, node: int) -> int:
        """Return the rank of a machine's first worker."""
        return sum(len(other.endpoints) for other in self.nodes[:node])

    def ranks(self, node: int) -> str:
        """Return a machine's ranks, or its servers and workers, for a message."""
        if self.servers:
            here = self.nodes[node]
            return ", ".join(
                [f"server {self.servers.index(e)}" for e in here.servers]
                + [f"worker {self.endpoints.index(e)}" for e in here.endpoints]
            )
        first, count = self.first_rank(node), len(self.nodes[node].endpoints)
        return f"rank {first}" if count == 1 else f"ranks {first} to {first + count - 1}"


@dataclass(frozen=True)
class Site:
    """What this machine knows about the job before the rendezvous."""

    node_count: int
    node_rank: int
    """The index of this machine; -1 if the rendezvous assigns it."""
    host: str | None
    """The address of this machine; None if the connection to the others determines it."""
    hosts: tuple[str, ...] = ()
    """The machines in order, if the flags list them."""
    endpoints: tuple[str, ...] = ()
    """The endpoints of this machine's workers if ports are fixed; otherwise free ports are used."""
    meeting: tuple[str, int] | None = None
    """The address of the rendezvous; None on a single machine."""
    started_port: int | None = None
    server_count: int = 0
    """The number of parameter servers on this machine."""
    servers: tuple[str, ...] = ()
    """Their addresses, if ports are fixed."""
    listed: tuple[str, ...] = ()
    """All servers and workers in the order of the flags, if the flags list them."""


def find_site(options: Options, devices: Devices, environment: Mapping[str, str]) -> Site:
    """Determine from flags and environment which machine of which job this is."""
    workers = len(devices.shares)
    cloud = all(environment.get(name) for name in _CLOUD)
    if options.use_paddlecloud and environment.get("PADDLE_TRAINERS_NUM") != "1" and not cloud:
        missing = [name for name in _CLOUD if not environment.get(name)]
        raise LaunchError(
            f"--use_paddlecloud needs the environment variables {', '.join(_CLOUD)}, but "
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set."
        )
    if cloud and len(_hosts(environment["PADDLE_TRAINERS"])) > 1:
        return _cloud_site(options, workers, environment)
    hosts = _hosts(options.ips)
    if len(hosts) > 1:
        host = host_of_list(hosts, options.host or environment.get("POD_IP"))
        port = options.started_port or _FIRST_PORT
        return _site_of_list(hosts, hosts.index(host), workers, port)
    if options.elastic_server:
        return _site_to_be_found(options, environment)
    if options.nnodes > 1:
        return _site_of_master(options, environment)
    return _single_site(options, hosts[0], workers)


def _hosts(text: str) -> list[str]:
    hosts = [item.strip() for item in text.split(",") if item.strip()]
    if not hosts:
        raise LaunchError("--ips is empty: list the addresses of all machines, or leave it out.")
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice:
        raise LaunchError(
            f"--ips names {', '.join(twice)} more than once: list every machine once "
            "(workers per machine come from --gpus or --nproc_per_node)."
        )
    return hosts


def host_of_list(hosts: list[str], named: str | None, flag: str = "--ips") -> str:
    """Find this machine in the list of a flag; an explicit --host or POD_IP takes precedence."""
    listed = ",".join(hosts)
    if named is not None:
        if named not in hosts:
            raise LaunchError(f"--host {named} (or POD_IP) is not one of {flag} {listed}.")
        _check_local("--host", named)
        return named
    local = [host for host in hosts if network.is_local(host)]
    if not local:
        raise LaunchError(
            f"None of {flag} {listed} is an address of this machine: correct the list, or start "
            "fleetrun on the machines that it names."
        )
    if len(local) > 1:
        raise LaunchError(
            f"More than one of {flag} is this machine ({', '.join(local)}): select one with --host."
        )
    return local[0]


def _check_local(flag: str, host: str) -> None:
    if not network.is_local(host):
        raise LaunchError(
            f"{flag} {host} is not an address of this machine: give one that it has, as "
            "`ip address` lists them."
        )


def _site_of_list(hosts: list[str], rank: int, workers: int, port: int) -> Site:
    endpoints = endpoints_from(hosts[rank], port, workers)
    return Site(
        node_count=len(hosts),
        node_rank=rank,
        host=hosts[rank],
        hosts=tuple(hosts),
        endpoints=endpoints,
        # The first worker's port: fixed, known to all, and open between the machines anyway.
        # The rendezvous no longer listens on it when the workers start.
        meeting=(hosts[0], port),
        started_port=port,
    )


def endpoints_from(host: str, port: int, workers: int) -> tuple[str, ...]:
    """Return the addresses of processes on consecutive ports, which must be free."""
    if port + workers - 1 > 65535:
        raise LaunchError(f"--started_port {port} leaves no room for {workers} workers' ports.")
    busy = [p for p in range(port, port + workers) if network.port_in_use(host, p)]
    if busy:
        raise LaunchError(
            f"Port {', '.join(map(str, busy))} of {host} is in use: end what listens there, or "
            "choose others with --started_port, the same on all machines."
        )
    return tuple(network.join_endpoint(host, port + i) for i in range(workers))


def _cloud_site(options: Options, workers: int, environment: Mapping[str, str]) -> Site:
    hosts = _hosts(environment["PADDLE_TRAINERS"])
    host = host_of_list(hosts, environment["POD_IP"])
    if environment.get("DISTRIBUTED_TRAINER_ENDPOINTS"):
        return _listed_site(hosts, host, workers, environment["DISTRIBUTED_TRAINER_ENDPOINTS"])
    port = options.started_port or _FIRST_CLOUD_PORT
    given = environment.get("PADDLE_PORT", "").split(",")[0]
    if given and _cloud_number("TRAINER_PORTS_NUM", environment["TRAINER_PORTS_NUM"]) >= workers:
        port = _cloud_number("PADDLE_PORT", given)
    return _site_of_list(hosts, hosts.index(host), workers, port)


def _cloud_number(variable: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise LaunchError(f"{variable} must be a whole number, not {text!r}.")
    return int(text)


def _listed_site(hosts: list[str], host: str, workers: int, listed: str) -> Site:
    """Return the site whose workers use the addresses that PaddleCloud lists for all machines."""
    variable = "DISTRIBUTED_TRAINER_ENDPOINTS"
    endpoints: dict[str, list[str]] = {name: [] for name in hosts}
    for endpoint in (part.strip() for part in listed.split(",")):
        try:
            owner = network.split_endpoint(endpoint)[0]
        except ValueError as error:
            raise LaunchError(f"{variable}: {error}.") from None
        if owner not in endpoints:
            raise LaunchError(f"{variable} lists {endpoint}, which is not one of PADDLE_TRAINERS.")
        endpoints[owner].append(endpoint)
    few = [name for name in hosts if len(endpoints[name]) < workers]
    if few:
        raise LaunchError(
            f"{variable} lists {len(endpoints[few[0]])} endpoints of {few[0]}, but every machine "
            f"starts {workers} workers: start fewer, or list more."
        )
    # Use one endpoint per worker; PaddleCloud reserves the maximum number.
    mine = endpoints[host][:workers]
    busy = [e for e in mine if network.port_in_use(*network.split_endpoint(e))]
    if busy:
        raise LaunchError(f"{variable}: {', '.join(busy)} is in use: end what listens there.")
    return Site(
        node_count=len(hosts),
        node_rank=hosts.index(host),
        host=host,
        hosts=tuple(hosts),
        endpoints=tuple(mine),
        meeting=network.split_endpoint(endpoints[hosts[0]][0]),
    )


def _site_of_master(options: Options, environment: Mapping[str, str]) -> Site:
    if options.master is None:
        raise LaunchError(
            f"--nnodes {options.nodes_text} needs --master host:port, the same on all machines: an "
            "address of the first machine and a free port there (or list them with --ips)."
        )
    try:
        meeting = network.split_endpoint(options.master.removeprefix("http://"))
    except ValueError:
        raise LaunchError(f"--master must be host:port, not {options.master!r}.") from None
    if not -1 <= options.rank < options.nnodes:
        raise LaunchError(
            f"--rank must be from 0 to {options.nnodes - 1} (--nnodes {options.nodes_text}), "
            f"not {options.rank}."
        )
    if options.rank == 0 and network.resolve(meeting[0]) and not network.is_local(meeting[0]):
        raise LaunchError(
            f"--rank 0 must run on the machine of --master, but {meeting[0]} is not an address "
            "of this machine."
        )
    return Site(
        node_count=options.nnodes,
        node_rank=options.rank,
        host=_own_host(options, environment),
        meeting=meeting,
        started_port=options.started_port,
    )


def _own_host(options: Options, environment: Mapping[str, str]) -> str | None:
    if options.host:
        _check_local("--host", options.host)
    pod = environment.get("POD_IP")
    return options.host or (pod if pod and network.is_local(pod) else None)


def _site_to_be_found(options: Options, environment: Mapping[str, str]) -> Site:
    """Return the site of a machine that looks up in etcd where the others are."""
    etcd = etcd_endpoints(options.elastic_server)[0][1]
    host = _own_host(options, environment) or network.address_towards(etcd)
    if host is None:
        raise LaunchError(
            f"The address at which others reach this machine is unknown ({etcd} of "
            "--elastic_server is here, or cannot be resolved): give it by --host."
        )
    return Site(
        node_count=options.nnodes, node_rank=-1, host=host, started_port=options.started_port
    )


def _single_site(options: Options, ip: str, workers: int) -> Site:
    explicit = options.host is not None and ip == "127.0.0.1"
    host = options.host if explicit and options.host else ip
    _check_local("--host" if explicit else "--ips", host)
    if options.host not in (None, host):
        raise LaunchError(f"--host {options.host} is not one of --ips {ip}.")
    endpoints: tuple[str, ...] = ()
    if options.started_port:
        endpoints = endpoints_from(host, options.started_port, workers)
    return Site(node_count=1, node_rank=0, host=host, hosts=(host,), endpoints=endpoints)


def own_node(site: Site, host: str, devices: Devices) -> Node:
    """Complete this machine's node once its address is known; use free ports if none are fixed."""
    workers = 0 if site.endpoints else len(devices.shares)
    servers = 0 if site.servers else site.server_count
    if site.started_port:
        found = endpoints_from(host, site.started_port, servers + workers)
    else:
        ports = network.free_ports(servers + workers, host)
        found = tuple(network.join_endpoint(host, port) for port in ports)
    return Node(
        host,
        site.endpoints or found[servers:],
        tuple(",".join(share) for share in devices.shares),
        site.servers or found[:servers],
    )


def alone(site: Site, devices: Devices) -> Cluster:
    """Return the job of a single machine."""
    host = site.host or "127.0.0.1"
    node = own_node(site, host, devices)
    return Cluster(
        nodes=(node,), this=0, master=(host, master_port(host, node)), listed=site.listed
    )


def master_port(host: str, node: Node) -> int:
    """Return a free port of `host` that none of the node's processes uses."""
    taken = {network.split_endpoint(endpoint)[1] for endpoint in (*node.endpoints, *node.servers)}
    return next(p for p in network.free_ports(len(taken) + 1, host) if p not in taken)
