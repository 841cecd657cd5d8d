"""The flags of jobs whose workers and machines come and go."""

from __future__ import annotations

import argparse
from typing import NoReturn

from fleetx.launch.launch_errors import LaunchError
from fleetx.launch.server_arguments import checked
from fleetx.runtime import network

# Flags of Paddle's elastic jobs, with what takes their place: recognised only to be rejected.
_REPLACED = {
    "np": "give the number of machines by --nnodes, such as --nnodes 2:4",
    "scale": "start fleetrun on more machines, or end it on some; --nnodes 2:4 sets the limits",
    "force": "start fleetrun on more machines, or end it on some; --nnodes 2:4 sets the limits",
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of elastic jobs to a parser."""
    group = parser.add_argument_group("workers that come and go")
    group.add_argument(
        "--elastic",
        action="store_true",
        help="a lost worker costs one step: the others continue, and it is restarted and rejoins; "
        "with servers, asynchronous training continues without a worker that is not restarted",
    )
    group.add_argument("--elastic_level", type=int, default=-1, help=argparse.SUPPRESS)
    group.add_argument(
        "--elastic_timeout",
        type=float,
        default=30,
        metavar="S",
        help="with --elastic: exclude a worker after S seconds without a heartbeat (30)",
    )
    group.add_argument(
        "--elastic_server",
        metavar="HOST:PORT,…",
        help="with --elastic: an etcd in which the machines look up the first one and, if it "
        "is lost, elect another",
    )
    for name in _REPLACED:
        group.add_argument(f"--{name}", help=argparse.SUPPRESS)


def check(given: argparse.Namespace) -> None:
    """Raise LaunchError for flags that contradict each other or have no effect."""
    for name, instead in _REPLACED.items():
        if getattr(given, name):
            raise LaunchError(
                f"--{name} {getattr(given, name)} is a flag of Paddle's elastic jobs: {instead}."
            )
    if given.elastic and given.backend == "shm":
        raise LaunchError(
            "--backend shm needs a fixed group of workers, but --elastic changes it: leave out one "
            "of the two flags."
        )
    server = given.elastic_server
    if not server:
        return
    if not given.elastic:
        raise LaunchError(
            f"--elastic_server {server} is where machines that come and go find each other: add "
            "--elastic and --nnodes 2:4, or leave it out."
        )
    if given.master is not None:
        raise LaunchError(
            f"--master {given.master} and --elastic_server {server} both set the rendezvous of the "
            "machines: leave one out."
        )
    if given.rank != -1:
        raise LaunchError(
            f"--rank {given.rank} has no effect with --elastic_server {server}, which decides "
            "which machine is the first: leave it out."
        )
    etcd_endpoints(server)


def etcd_endpoints(text: str) -> list[tuple[str, str, int]]:
    """Return scheme, host and port of each member of an etcd cluster."""
    found = []
    for part in text.split(","):
        scheme, separator, place = part.strip().rpartition("://")
        try:
            host, port = network.split_endpoint(place.rstrip("/"))
        except ValueError:
            host, port = "", 0
        scheme = {"": "http", "etcd": "http"}.get(scheme, scheme) if separator else "http"
        if not host or scheme not in ("http", "https"):
            raise LaunchError(
                f"--elastic_server must be host:port of etcd, or https://host:port, several "
                f"separated by commas, not {text!r}."
            )
        found.append((scheme, host, port))
    return found


def refuse_elastic(because: str, instead: str) -> NoReturn:
    """Raise LaunchError for an elastic job other than collective training."""
    raise LaunchError(f"--elastic is for collective training, but {because}: {instead}.")


def node_counts(text: str, elastic: bool) -> tuple[int, int]:
    """Return the minimum and maximum number of machines; they differ in elastic jobs only."""
    least, colon, most = str(text).partition(":")
    parts = [least, most] if colon else [least]
    if not all(part.isdecimal() for part in parts) or not 1 <= int(least) <= int(parts[-1]):
        raise LaunchError(
            f"--nnodes must be a number of at least 1, or with --elastic a range such as 2:4, not "
            f"{text!r}."
        )
    if colon and not elastic:
        raise LaunchError(
            f"--nnodes {text} is a range of machines that come and go: add --elastic, or give one "
            "number."
        )
    return int(least), int(parts[-1])


def restarts(asked: int | None, elastic: bool) -> int:
    """Return the number of restarts; Paddle's default of 3 applies only in its elastic mode."""
    if asked is None:
        return 3 if elastic else 0
    checked("max_restart", asked, 0)
    return asked
