"""The flags of jobs with parameter servers: their number, addresses and fault tolerance."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from fleetx.launch.launch_errors import LaunchError
from fleetx.runtime import network
from fleetx.runtime.server_support import FSYNC_POLICIES, memory_size

# Flags of processes that compute part of the workers' models: recognised, and rejected by name.
_HETER_FLAGS = ("heter_workers", "heter_worker_num", "heter_devices")
# A job has servers if any of these flags is set.
_DECIDING = ("servers", "workers", "server_num", "worker_num")
_DEFAULT_RESTARTS = 3


@dataclass(frozen=True)
class ServerOptions:
    """Settings of the servers and their workers."""

    servers: tuple[str, ...] = ()
    """The addresses of the servers on all machines, 'host:port'."""
    workers: tuple[str, ...] = ()
    """The addresses of the workers, with or without a port."""
    server_num: int = 0
    """The number of servers; per machine if no addresses are given."""
    worker_num: int = 0
    http_port: int | None = None
    """The rendezvous of the groups of workers and servers that PADDLE_WITH_GLOO enables."""
    max_restart: int = _DEFAULT_RESTARTS
    """The maximum number of restarts of each server that is killed."""
    state: str | None = None
    """A folder for server state that outlives the job; None for a temporary one."""
    fsync: str = "none"
    snapshot_seconds: float | None = None
    memory: int | None = None
    """The memory of each server for rows, in bytes; None for no limit."""
    spill: str | None = None
    """The folder for rows that do not fit; None for that of the state."""
    keys: str | None = None
    """A key file present on every machine."""
    insecure: bool = False
    worker_wait: float | None = None
    server_wait: float | None = None


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of server jobs to a parser."""
    group = parser.add_argument_group("jobs with parameter servers")
    group.add_argument("--server_num", type=int, metavar="N", help="servers (on this machine)")
    group.add_argument(
        "--worker_num", "--trainer_num", type=int, metavar="N", help="workers (on this machine)"
    )
    group.add_argument(
        "--servers", default="", metavar="HOST:PORT,…", help="all servers, the same everywhere"
    )
    group.add_argument(
        "--workers", "--trainers", default="", metavar="HOST,…", help="all workers, likewise"
    )
    group.add_argument(
        "--max_server_restart",
        type=int,
        default=_DEFAULT_RESTARTS,
        metavar="N",
        help="restarts of each killed server (default: 3; 0 also disables the log of pushes)",
    )
    group.add_argument("--server_state", metavar="DIR", help="folder for the servers' state")
    group.add_argument("--server_fsync", default="none", choices=FSYNC_POLICIES)
    group.add_argument("--server_snapshot_seconds", type=float, metavar="S")
    group.add_argument(
        "--server_memory",
        metavar="SIZE",
        help="memory of each server for rows of tables, such as 8G; other rows are on disk",
    )
    group.add_argument("--server_spill", metavar="DIR", help="folder on a fast disk for those rows")
    group.add_argument("--server_keys", metavar="FILE", help="the job's keys, on every machine")
    group.add_argument(
        "--server_insecure",
        action="store_true",
        help="no keys: anyone who can reach a server controls it",
    )
    group.add_argument(
        "--worker_wait", type=float, metavar="S", help="how long servers wait for a lost worker"
    )
    group.add_argument(
        "--server_wait", type=float, metavar="S", help="how long workers wait for a lost server"
    )
    group.add_argument("--http_port", type=int, help=argparse.SUPPRESS)
    for name in _HETER_FLAGS:
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)


def read_flags(given: argparse.Namespace) -> ServerOptions | None:
    """Return the settings of a server job; None if the job has no servers."""
    heter = [name for name in _HETER_FLAGS if getattr(given, name)]
    if heter or given.run_mode == "ps-heter":
        flag = heter[0] if heter else "run_mode ps-heter"
        raise LaunchError(
            f"--{flag} requests processes that compute part of the workers' models, which "
            "fleetrun cannot start: leave it out."
        )
    if given.run_mode not in ("collective", "ps"):
        raise LaunchError(f"--run_mode must be collective or ps, not {given.run_mode!r}.")
    deciding = [name for name in _DECIDING if getattr(given, name)]
    if not deciding and given.run_mode == "collective":
        if given.server_memory is not None or given.server_spill is not None:
            name = "server_memory" if given.server_memory is not None else "server_spill"
            raise LaunchError(
                f"--{name} {getattr(given, name)} is for jobs with parameter servers, and this one "
                "has none: give --server_num and --worker_num too, or leave it out."
            )
        return None
    servers = _listed("--servers", given.servers, needs_port=True)
    workers = _listed("--workers", given.workers, needs_port=False)
    both = sorted(set(servers) & set(workers))
    if both:
        raise LaunchError(f"--servers and --workers both name {', '.join(both)}.")
    return ServerOptions(
        servers=servers,
        workers=workers,
        server_num=_count("server_num", given.server_num, "servers", servers),
        worker_num=_count("worker_num", given.worker_num, "workers", workers),
        http_port=checked("http_port", given.http_port, 1, 65535),
        max_restart=checked("max_server_restart", given.max_server_restart, 0) or 0,
        state=given.server_state,
        fsync=given.server_fsync,
        snapshot_seconds=seconds("server_snapshot_seconds", given.server_snapshot_seconds),
        memory=_memory(given),
        spill=given.server_spill,
        keys=given.server_keys,
        insecure=given.server_insecure,
        worker_wait=seconds("worker_wait", given.worker_wait),
        server_wait=seconds("server_wait", given.server_wait),
    )


def _memory(given: argparse.Namespace) -> int | None:
    if given.server_memory is None:
        if given.server_spill is not None:
            raise LaunchError(
                f"--server_spill {given.server_spill} is for rows that do not fit into memory: "
                "give --server_memory too, or leave it out."
            )
        return None
    try:
        return memory_size(given.server_memory, "--server_memory")
    except ValueError as error:
        raise LaunchError(str(error)) from None


def _listed(flag: str, text: str, needs_port: bool) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(",") if item.strip())
    for item in items:
        if needs_port or ":" in item:
            try:
                network.split_endpoint(item)
            except ValueError as error:
                raise LaunchError(f"{flag}: {error}.") from None
    twice = sorted({item for item in items if items.count(item) > 1 and ":" in item})
    if twice:
        raise LaunchError(f"{flag} names {', '.join(twice)} more than once.")
    return items


def _count(flag: str, number: int | None, list_flag: str, listed: tuple[str, ...]) -> int:
    checked(flag, number, 1)
    if number is None and not listed:
        raise LaunchError(
            f"A job with parameter servers needs both roles: give --{flag} or --{list_flag} too."
        )
    if number is not None and listed and number != len(listed):
        raise LaunchError(
            f"--{flag} is {number}, but --{list_flag} names {len(listed)}: leave one of them out."
        )
    return number or len(listed)


def checked(flag: str, value: int | None, least: int, most: int | None = None) -> int | None:
    """Return the number given by a flag; raise LaunchError if it is out of range."""
    if value is not None and (value < least or (most is not None and value > most)):
        limit = f"from {least} to {most}" if most else f"{least} or more"
        raise LaunchError(f"--{flag} must be {limit}, not {value}.")
    return value


def seconds(flag: str, value: float | None) -> float | None:
    """Return the time given by a flag; raise LaunchError if it is not positive."""
    if value is not None and not 0 < value < float("inf"):
        raise LaunchError(f"--{flag} must be more than 0 seconds, not {value:g}.")
    return value
