"""Planning which servers take over the tables: the first machine queries all machines of the job.

    request.json -> invite() -> an offer of addresses from every machine -> layout()
    -> all new servers are up -> plan.json

New servers are distributed evenly over the machines that already have servers, and therefore their
keys. State is handed over in files: every machine needs access to the folder of the first one.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleetx.launch.console import log
from fleetx.launch.job_layout import Cluster
from fleetx.launch.records import checked
from fleetx.runtime import network
from fleetx.runtime.layout_folder import (
    MOST_SERVERS,
    LayoutFolder,
    ServerLayout,
    are_ready,
    checked_endpoints,
)

_LONGEST_PATH = 4096


@dataclass(frozen=True)
class Invitation:
    """A request for addresses of the servers that take over."""

    generation: int
    servers: int
    path: str
    """The folder with the files of the job."""
    token: str
    """The name of a file in the folder of the handover."""

    def to_note(self) -> dict[str, Any]:
        """Return the invitation for another machine."""
        return {"type": "invite", **vars(self)}

    @classmethod
    def from_note(cls, note: dict[str, Any]) -> Invitation:
        """Read what `to_note` wrote; raise ValueError for anything else."""
        kinds = {"type": str, "generation": int, "servers": int, "path": str, "token": str}
        found = checked(note, kinds)
        del found["type"]
        given = cls(**found)
        is_token = given.token.isascii() and given.token.isalnum() and len(given.token) <= 64
        if not (is_token and given.generation > 0 and 0 < given.servers <= MOST_SERVERS):
            raise ValueError(f"{note!r:.200} is no invitation")
        if not 0 < len(given.path) <= _LONGEST_PATH or "\0" in given.path:
            raise ValueError(f"{given.path!r:.100} is no folder")
        return given


def share_of(machine: int, servers: int, cluster: Cluster) -> int:
    """Return how many of these servers a machine runs."""
    hosts = [number for number, node in enumerate(cluster.nodes) if node.servers]
    if machine not in hosts:
        return 0
    each, left = divmod(servers, len(hosts))
    return each + (hosts.index(machine) < left)


def offer(invitation: Invitation, files: LayoutFolder, cluster: Cluster) -> dict[str, Any]:
    """Return a machine's answer: free addresses for its share, or why it cannot take part."""
    host = cluster.here.host
    problem = _obstacle(invitation, files)
    count = 0 if problem else share_of(cluster.this, invitation.servers, cluster)
    endpoints = [network.join_endpoint(host, port) for port in network.free_ports(count, host)]
    answer = {"token": invitation.token, "endpoints": endpoints, "problem": problem}
    return {"type": "offer", **answer}


def _obstacle(invitation: Invitation, files: LayoutFolder) -> str:
    is_shared = str(files.path) == invitation.path and _probe(files, invitation).is_file()
    if not is_shared:
        return (
            f"does not see {invitation.path}; --server_state must be one folder, with the same "
            "name on all machines, on a disk that they share"
        )
    now = files.read()
    if now is None or now.generation + 1 != invitation.generation:
        return f"finds another {files.path}/layout.json than the first machine"
    return ""


def _probe(files: LayoutFolder, invitation: Invitation) -> Path:
    return files.handover(invitation.generation) / f"invitation-{invitation.token}"


class MovePlanning:
    """The first machine's part: requests, offers and plans."""

    def __init__(self, files: LayoutFolder, cluster: Cluster) -> None:
        self._files, self._cluster = files, cluster
        self._invitation: Invitation | None = None
        self._offers: dict[int, tuple[str, ...]] = {}
        self._due: ServerLayout | None = None

    def invite(self) -> Invitation | None:
        """Return the invitation for all machines, if another number of servers was requested."""
        if self._invitation is not None or self._due is not None:
            return None
        count = None
        try:
            count, now = self._files.wanted(), self._files.read()
        except ValueError as error:
            self._refuse(count, str(error).rstrip("."))
            return None
        if count is None or now is None:
            return None
        if count == len(now.endpoints):
            self._refuse(count, f"the job has {count} server(s) already")
            return None
        token = secrets.token_hex(8)
        generation = now.generation + 1
        self._invitation = Invitation(generation, count, str(self._files.path), token)
        self._offers = {}
        self._files.make_room(generation)
        probe = _probe(self._files, self._invitation)
        probe.parent.mkdir(parents=True)
        probe.touch()
        return self._invitation

    def hear(self, machine: int, note: dict[str, Any]) -> None:
        """Store a machine's offer; raise ValueError if it is invalid."""
        kinds = {"type": str, "token": str, "endpoints": tuple, "problem": str}
        found, asked = checked(note, kinds), self._invitation
        if asked is None or found["token"] != asked.token:
            return
        node = self._cluster.nodes[machine]
        if found["problem"]:
            self._files.make_room(asked.generation)
            self._refuse(asked.servers, f"{node.host} {found['problem'][:1000]}")
            return
        endpoints = checked_endpoints(found["endpoints"]) if found["endpoints"] else ()
        hosts = {network.split_endpoint(endpoint)[0] for endpoint in endpoints}
        count = share_of(machine, asked.servers, self._cluster)
        if len(endpoints) != count or not hosts <= {node.host}:
            raise ValueError(f"{endpoints} are not {count} addresses of {node.host}")
        self._offers[machine] = endpoints

    def layout(self) -> ServerLayout | None:
        """Return the servers to start, once, when all machines have offered addresses."""
        asked = self._invitation
        if asked is None or len(self._offers) < len(self._cluster.nodes):
            return None
        now = self._files.read()
        assert now is not None
        endpoints = tuple(e for _, offered in sorted(self._offers.items()) for e in offered)
        self._invitation = None
        self._due = replace(now, generation=asked.generation, endpoints=endpoints)
        return self._due

    def publish(self) -> None:
        """Write the plan when all new servers are up; training goes on while they start."""
        due = self._due
        if due is not None and are_ready(self._files.handover(due.generation), len(due.endpoints)):
            self._files.write_plan(due)
            self._files.settle(len(due.endpoints))
            self._due = None

    def _refuse(self, count: int | None, reason: str) -> None:
        many = "another number of" if count is None else str(count)
        sentence = f"Tables do not move to {many} server(s): {reason}."
        log.warning(sentence)
        self._files.refuse(sentence)
        self._files.settle(count)
        self._invitation = None
