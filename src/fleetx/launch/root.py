"""The first machine of a job on several machines: rendezvous, start and outcome.

It listens at the address from the flags until every machine has joined with the same job, then
sends the whole cluster to all of them. While the workers run it collects failures and heartbeats,
determines which failure came first, and notifies every machine.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fleetx.launch.console import log
from fleetx.launch.devices import Devices
from fleetx.launch.failure import Failure, first
from fleetx.launch.hang_detection import Idle, hang_of
from fleetx.launch.job_layout import Cluster, Node, Site, master_port, own_node
from fleetx.launch.launch_errors import LaunchError
from fleetx.launch.link import Check, Link, Rules, Verdict
from fleetx.launch.meeting import (
    Notices,
    Pace,
    Ticket,
    difference,
    node_from_json,
    node_to_json,
)
from fleetx.launch.records import INVALID, checked_note
from fleetx.launch.silence import Silence
from fleetx.runtime import network
from fleetx.runtime.wire import Line, Message

# Failures of other machines arrive a moment after the first; collect all before deciding.
_HEARING = 0.5
# After a mismatch of jobs is found, machines that join late are still notified.
_LATECOMERS = 3.0
# Connections that have not joined: for how many seconds they are kept, and how many.
_JOIN = 10.0
_STRANGERS = 64


@dataclass
class _Member:
    """Another machine, as seen by the first one."""

    line: Line
    node: Node
    rank: int = -1
    idle: Idle = Idle()
    done: bool = False
    ready_for: int = 0
    stacks: list[str] = field(default_factory=list)


class Root(Link):
    """The link of the first machine."""

    def __init__(self, site: Site, devices: Devices, rules: Rules, ticket: Ticket) -> None:
        super().__init__(site, devices, rules)
        self._ticket = ticket
        self._members: list[_Member] = []
        self._strangers: list[Line] = []
        self._problem: str | None = None
        self._problem_since = 0.0
        self._cluster: Cluster | None = None
        self._decide_at: float | None = None
        self._done_here = False
        self._told_to_stop = False
        self._pace, self._silence = Pace(), Silence(rules.lost_after)
        self._listener = self._listen()

    def _listen(self) -> socket.socket:
        host, port = self._meeting
        # A name that does not resolve yet (Kubernetes publishes them late) is awaited in meet().
        listener = network.listen(host if network.resolve(host) else "", port)
        listener.setblocking(False)
        return listener

    # ---- rendezvous

    def meet(self, attempt: int, check: Check) -> Cluster:
        """Wait for all machines, then send the cluster to each of them."""
        self.attempt = attempt
        self._failures.clear()
        self._notes.clear()
        self._decide_at, self._done_here, self._told_to_stop = None, False, False
        deadline = time.monotonic() + self.rules.rdzv_timeout
        # First: a machine that has joined hears nothing while keys are made.
        keys = self.rules.keys()
        if attempt == 0:
            self._gather(deadline, check)
        else:
            self._wait_until_ready(attempt, deadline, check)
        return self._start(keys)

    def _gather(self, deadline: float, check: Check) -> None:
        host = self.own_host(deadline, check)
        own = own_node(self.site, host, self.devices)
        self._cluster = Cluster(nodes=(own,), this=0, master=self._meeting)
        notices = Notices()
        while len(self._members) + 1 < self.site.node_count:
            check()
            self._accept()
            missing = self._missing()
            notices.say(f"Waiting at {self._where()} for {missing}.")
            if time.monotonic() >= deadline:
                if self._problem is None:
                    self._problem = self._timed_out(missing)
                self._refuse()
            self._beat(missing)
            select.select([self._listener, *(self._sockets())], [], [], 0.1)
            if self._problem is not None and self._problem_since + _LATECOMERS < time.monotonic():
                self._refuse()
        if self._problem is not None:
            self._refuse()
        self._listener.close()
        for stranger in self._strangers:
            stranger.close()
        self._strangers.clear()

    def _sockets(self) -> list[socket.socket]:
        lines = [*self._strangers, *(member.line for member in self._members)]
        return [line.socket for line in lines if not line.closed]

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
            self._strangers.append(Line(connection, self.rules.secret, is_root=True))
        except BlockingIOError:
            pass
        late = [line for line in self._strangers if line.opened + _JOIN < time.monotonic()]
        for stranger in late + self._strangers[:-_STRANGERS]:
            stranger.close()
        for stranger in list(self._strangers):
            for message in stranger.pump():
                if message["type"] == "join" and stranger in self._strangers:
                    self._strangers.remove(stranger)
                    try:
                        self._admit(stranger, message)
                    except INVALID as error:
                        log.warning(
                            "%s sent an invalid join message: %r", stranger.peer_address, error
                        )
                        stranger.close()
            if stranger.closed and stranger in self._strangers:
                self._strangers.remove(stranger)
        for member in list(self._members):
            member.line.pump()
            if member.line.closed:  # it may rejoin until the deadline
                log.warning("%s joined and disconnected again.", member.node.host)
                self._members.remove(member)

    def _admit(self, line: Line, message: Message) -> None:
        node = node_from_json(message["node"])
        assert self._cluster is not None
        problem = difference(self._ticket, self._cluster.here.host, message["ticket"], node.host)
        taken = [member.rank for member in self._members] + [0]
        rank = message["rank"]
        if problem is not None:
            if self._problem is None:
                self._problem, self._problem_since = problem, time.monotonic()
        elif rank != -1 and rank in taken:
            line.send(
                {"type": "refuse", "text": f"Machine {rank} ({node.host}) has already joined."}
            )
            line.flush()
            line.close()
            return
        log.debug("%s has joined.", node.host)
        self._members.append(_Member(line, node, rank))

    def _missing(self) -> str:
        if self.site.hosts:
            here = {member.node.host for member in self._members} | {self.site.hosts[0]}
            return ", ".join(self._endpoints_of(h) for h in self.site.hosts if h not in here)
        count = self.site.node_count - 1 - len(self._members)
        came = ", ".join(member.node.host for member in self._members) or "none"
        return f"{count} of {self.site.node_count} machines (joined so far: {came})"

    def _endpoints_of(self, host: str) -> str:
        if self.site.started_port is None:
            return host
        ports = range(self.site.started_port, self.site.started_port + len(self.devices.shares))
        return ",".join(network.join_endpoint(host, port) for port in ports)

    def _timed_out(self, missing: str) -> str:
        return (
            f"After {self.rules.rdzv_timeout:g} s (--rdzv_timeout) these machines did not join: "
            f"{missing}. Likely reasons: fleetrun is not running there, or failed; a wrong ip "
            f"in the flags; a firewall or a proxy that keeps them from {self._where()}; another "
            "number of machines, or another --started_port or --master, in their flags."
        )

    def _refuse(self) -> None:
        """Abort the rendezvous on all machines with the same message."""
        assert self._problem is not None
        for line in [*self._strangers, *(member.line for member in self._members)]:
            line.send({"type": "refuse", "text": self._problem})
            line.flush()
        raise LaunchError(self._problem, 1)

    def _wait_until_ready(self, attempt: int, deadline: float, check: Check) -> None:
        while any(member.ready_for < attempt for member in self._members):
            check()
            verdict = self.poll(Idle())
            if verdict is not None or time.monotonic() >= deadline:
                reason = verdict.failure.sentence if verdict else "Not every machine rejoined."
                raise LaunchError(f"The restart failed: {reason}", 1)
            select.select(self._sockets(), [], [], 0.1)

    def _start(self, keys: Mapping[str, str] | None) -> Cluster:
        """Number the machines, choose the workers' rendezvous address, and send both to all."""
        assert self._cluster is not None
        self._number()
        ordered = sorted(self._members, key=lambda member: member.rank)
        own = self._cluster.nodes[0]
        # Use the name from the flags: if it reaches this machine, it reaches the process group.
        master = (self._meeting[0], master_port(own.host, own))
        nodes = (own, *(member.node for member in ordered))
        cluster = Cluster(nodes=nodes, this=0, master=master, listed=self.site.listed)
        self._cluster = cluster = replace(cluster, keys=keys)
        for member in ordered:
            member.done, member.idle, member.stacks = False, Idle(), []
            member.line.last_heard = time.monotonic()
            member.line.send(
                {
                    "type": "start",
                    "attempt": self.attempt,
                    "this": member.rank,
                    "master": list(master),
                    "nodes": [node_to_json(node) for node in nodes],
                    "keys": self._keys_for(member.node, cluster.keys),
                }
            )
        return self._cluster

    def _keys_for(self, node: Node, keys: Mapping[str, str] | None) -> dict[str, str] | None:
        """Return the keys for a machine: without servers there, the servers' secret is left out."""
        if keys is None or self.rules.own_keys is not None:
            return None
        return {**keys} if node.servers else {**keys, "server_secret": ""}

    def _number(self) -> None:
        """Assign free indices to machines without one, in the order in which they joined."""
        taken = {member.rank for member in self._members} | {0}
        free = iter(rank for rank in range(self.site.node_count) if rank not in taken)
        for member in self._members:
            if member.rank == -1:
                member.rank = next(free)

    # ---- while the workers run

    def report(self, failure: Failure) -> None:
        """Record a failure on this machine; a signal ends the job at once."""
        super().report(failure)
        if failure.kind == "asked":
            self._tell_to_stop(Verdict(failure))

    def complete(self) -> None:
        """Record that this machine's workers have succeeded."""
        self._done_here = True

    def poll(self, idle: Idle) -> Verdict | None:
        """Process messages from all machines and return the outcome, if there is one."""
        pause = self._pace.pause()
        for member in self._members:
            member.line.last_heard += pause
            for message in member.line.pump():
                self._hear(member, message)
            self._notice_loss(member)
        self._beat()
        self._notice_end(idle)
        now = time.monotonic()
        if self._failures and self._decide_at is None:
            self._decide_at = now + _HEARING
        if self._decide_at is None or now < self._decide_at:
            return None
        failure = first(self._failures)
        verdict = Verdict(failure, self.rules.allows_restart(failure, self.attempt))
        self._tell_to_stop(verdict)
        return verdict

    def _hear(self, member: _Member, message: dict[str, Any]) -> None:
        try:
            self._take(member, message)
        except INVALID as error:
            log.warning("%s sent an invalid message: %r", member.node.host, error)
            member.line.close()

    def _take(self, member: _Member, message: dict[str, Any]) -> None:
        if message["attempt"] < self.attempt and message["type"] != "ready":
            return  # a late message of an earlier attempt
        match message["type"]:
            case "alive":
                member.idle = Idle.from_json(message["idle"])
            case "done":
                member.done = True
            case "ready":
                member.ready_for = message["attempt"]
            case "failed":
                self._failures.append(Failure.from_json(message["failure"]))
            case "stacks":
                member.stacks.append(str(message["text"]))
            case "note":
                self._notes.append((member.rank, checked_note(message)))

    def _notice_loss(self, member: _Member) -> None:
        if self._told_to_stop or self.finished or self._failures:
            return
        assert self._cluster is not None
        failure = self._silence.loss_of(member.line, self._cluster, member.rank)
        if failure is not None:
            self._failures.append(failure)

    def _beat(self, missing: str = "") -> None:
        if self._pace.due():
            for member in self._members:
                member.line.send({"type": "alive", "missing": missing})

    def _notice_end(self, idle: Idle) -> None:
        working = [member.idle for member in self._members if not member.done]
        if self._done_here and not working:
            self.finished = True
            for member in self._members:
                member.line.send({"type": "finished"})
        elif not self._failures and not self._told_to_stop:
            machines = working if self._done_here else [idle, *working]
            hang = hang_of(machines, self.rules.hang_timeout, self.site.host or "")
            if hang is not None:
                self._failures.append(hang)

    def _tell_to_stop(self, verdict: Verdict) -> None:
        self._told_to_stop = True
        for member in self._members:
            member.line.send(
                {"type": "stop", "failure": verdict.failure.to_json(), "again": verdict.again}
            )

    def tell(self, note: Message) -> None:
        """Send a note to all other machines."""
        for member in self._members:
            member.line.send({"type": "note", "note": note})

    def share_stacks(self, text: str) -> list[str]:
        """Wait briefly for the other machines' stacks."""
        deadline = time.monotonic() + 4
        waiting = [member for member in self._members if not member.done]
        while time.monotonic() < deadline:
            for member in waiting:
                for message in member.line.pump():
                    self._hear(member, message)
            if all(member.stacks or member.line.closed for member in waiting):
                break
            select.select(self._sockets(), [], [], 0.1)
        return [text for member in waiting for text in member.stacks]

    def close(self) -> None:
        """Flush pending messages and close every connection."""
        self._listener.close()
        for member in self._members:
            member.line.flush()
            member.line.close()
