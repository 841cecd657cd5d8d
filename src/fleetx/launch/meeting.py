"""The common parts of the rendezvous of several machines' launchers.

All machines must request the same job: the ticket holds what has to match. The first machine
exchanges heartbeats with every other; one that is silent for too long (`Rules.lost_after`) is lost.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetx.launch.arguments import Options
from fleetx.launch.console import log
from fleetx.launch.job_layout import Cluster, Node, Site
from fleetx.launch.records import checked

PROTOCOL = 4
BEAT_EVERY = 1.0
# The fields of a node that are lists of texts.
_LISTS = ("endpoints", "devices", "servers")

Ticket = dict[str, Any]


def ticket(options: Options, site: Site, workers: int) -> Ticket:
    """Return what all machines of the job must agree on, keyed by its name in messages."""
    script = Path(options.script)
    content = hashlib.sha256(script.read_bytes()).hexdigest()[:12] if script.is_file() else ""
    return {
        "protocol": PROTOCOL,
        "machines": options.nodes_text if options.elastic else site.node_count,
        "--elastic": options.elastic,
        **_processes(site, workers),
        "job (--job_id)": options.job_id,
        "name of the script": script.name,
        "content of the script (checksum)": content,
        "--max_restart": options.max_restart,
        "--hang_timeout": options.hang_timeout,
    }


def _processes(site: Site, workers: int) -> Ticket:
    if site.listed:
        return {"list of servers and workers": ",".join(site.listed)}
    counts: Ticket = {
        "list of machines (--ips)": ",".join(site.hosts),
        "workers per machine": workers,
        "world size": site.node_count * workers,
    }
    return {**counts, "servers per machine": site.server_count} if site.server_count else counts


def difference(own: Ticket, own_host: str, other: Ticket, other_host: str) -> str | None:
    """Describe in one sentence how two tickets differ; return None if they match."""
    # A list of a different length is reason enough; its consequences need not be listed.
    parts = [
        f"{name} {own.get(name)!r} on {own_host} and {other.get(name)!r} on {other_host}"
        for name in own
        if own.get(name) != other.get(name)
    ]
    if not parts:
        return None
    return f"The machines were started for different jobs: {'; '.join(parts)}."


def node_to_json(node: Node) -> dict[str, Any]:
    """Return a node as JSON values."""
    return {"host": node.host, **{name: list(getattr(node, name)) for name in _LISTS}}


def node_from_json(record: dict[str, Any]) -> Node:
    """Read what `node_to_json` wrote; raise ValueError for anything else."""
    found = checked(record, {"host": str, **dict.fromkeys(_LISTS, tuple)})
    return Node(found["host"], *(found[name] for name in _LISTS))


def cluster_from_json(record: dict[str, Any], listed: tuple[str, ...]) -> Cluster:
    """Read the cluster of a start message; `listed` is the order given by the flags."""
    nodes = tuple(node_from_json(node) for node in record["nodes"])
    host, port = record["master"]
    return Cluster(
        nodes=nodes,
        this=record["this"],
        master=(host, port),
        listed=listed,
        keys=record["keys"],
    )


@dataclass
class Notices:
    """Printer of what the rendezvous waits for: after an initial delay, then on changes only."""

    _QUIET = 1.0
    _BETWEEN = 3.0

    def __post_init__(self) -> None:
        self._next = time.monotonic() + self._QUIET
        self._last = ""

    def say(self, text: str) -> None:
        """Print the text unless it was printed before or another was printed a moment ago."""
        if text != self._last and time.monotonic() >= self._next:
            log.info(text)
            self._last = text
            self._next = time.monotonic() + self._BETWEEN


class Pace:
    """Timer that schedules heartbeats and detects when this process itself was suspended."""

    def __init__(self) -> None:
        self._sent = 0.0
        self._seen = time.monotonic()

    def due(self) -> bool:
        """Return True about once per `BEAT_EVERY` seconds, when a heartbeat is due."""
        now = time.monotonic()
        if now - self._sent < BEAT_EVERY:
            return False
        self._sent = now
        return True

    def pause(self) -> float:
        """Return how long this process was suspended since the last call (0 if it was not).

        A machine that was suspended must not mistake its own silence for that of the others.
        """
        now = time.monotonic()
        gap, self._seen = now - self._seen, now
        return gap if gap > BEAT_EVERY * 3 else 0.0


def warn_without_secret(secret: bytes, meeting: tuple[str, int]) -> None:
    """Warn about who can join a job whose machines share no secret."""
    if not secret:
        log.warning(
            "The rendezvous of this job has no secret: whoever reaches port %d of %s and "
            "knows the job's settings can join it. In a network that is not private, pass "
            "--job_secret FILE on all machines (`openssl rand -hex 32 > job.secret`).",
            *reversed(meeting),
        )
