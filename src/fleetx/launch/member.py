"""A job on several machines, on every machine but the first: join, follow, report."""

from __future__ import annotations

import select
import socket
import time
from dataclasses import replace

from fleetx.launch.devices import Devices
from fleetx.launch.failure import Failure
from fleetx.launch.hang_detection import Idle
from fleetx.launch.job_layout import Cluster, Site, own_node
from fleetx.launch.launch_errors import LaunchError, NotReachedError
from fleetx.launch.link import Check, Link, Rules, Verdict
from fleetx.launch.meeting import (
    Notices,
    Pace,
    Ticket,
    cluster_from_json,
    node_to_json,
)
from fleetx.launch.records import checked_note
from fleetx.launch.silence import LOST_AFTER, Silence
from fleetx.runtime import network
from fleetx.runtime.wire import LONGEST_TEXT, Line, Message

_TRY = 2.0


class Member(Link):
    """The link of a machine that is not the first."""

    def __init__(self, site: Site, devices: Devices, rules: Rules, ticket: Ticket) -> None:
        super().__init__(site, devices, rules)
        self._ticket = ticket
        self._line: Line | None = None
        self._cluster: Cluster | None = None
        self._verdict: Verdict | None = None
        self._pace, self._silence = Pace(), Silence(rules.lost_after)
        self._notices = Notices()
        self._last_error = "no answer"

    # ---- rendezvous

    def meet(self, attempt: int, check: Check) -> Cluster:
        """Join the rendezvous and wait for the start message."""
        self.attempt = attempt
        self._verdict = None
        self._notes.clear()
        if attempt > 0:
            self._send({"type": "ready"})
        deadline = time.monotonic() + self.rules.rdzv_timeout
        while True:
            if self._line is None or self._line.closed:
                if attempt > 0:
                    raise LaunchError("The restart failed: the first machine disconnected.", 1)
                self._connect(deadline, check)
            check()
            cluster = self._listen_for_start()
            if cluster is not None:
                self._cluster = cluster
                return cluster
            self._beat(Idle())

    def _connect(self, deadline: float, check: Check) -> None:
        """Retry until the first machine answers."""
        while True:
            check()
            if time.monotonic() >= deadline:
                raise NotReachedError(self._never_reached(), 1)
            address = network.resolve(self._meeting[0])
            if address is None:
                self._last_error = "the name cannot be resolved"
            else:
                try:
                    connection = socket.create_connection((address, self._meeting[1]), _TRY)
                except OSError as error:
                    self._last_error = error.strerror or str(error)
                else:
                    break
            self._notices.say(f"Waiting for the first machine at {self._where()}.")
            select.select([], [], [], 0.2)
        self._line = Line(connection, self.rules.secret, is_root=False)
        node = own_node(self.site, self.site.host or self._line.own_address, self.devices)
        self._send(
            {
                "type": "join",
                "ticket": self._ticket,
                "rank": self.site.node_rank,
                "node": node_to_json(node),
            }
        )

    def _never_reached(self) -> str:
        return (
            f"The first machine was not reached at {self._where()} in "
            f"{self.rules.rdzv_timeout:g} s (--rdzv_timeout; last try: {self._last_error}). "
            "Likely reasons: fleetrun is not running there, or failed; a wrong ip in "
            "the flags; a firewall or a proxy in between; another --started_port or --master there."
        )

    def _listen_for_start(self) -> Cluster | None:
        assert self._line is not None
        select.select([self._line.socket], [], [], 0.1)
        for message in self._line.pump():
            if message["type"] == "refuse":
                raise LaunchError(message["text"], 1)
            if message["type"] == "start":
                cluster = cluster_from_json(message, self.site.listed)
                # If every machine has the key file, keys are known without being sent.
                own = self.rules.own_keys
                return cluster if own is None else replace(cluster, keys=own)
            if message.get("missing"):
                self._notices.say(f"Waiting at {self._where()} for {message['missing']}.")
        if time.monotonic() - self._line.last_heard > LOST_AFTER:
            self._line.close()
        if self._line.closed and not self._line.is_verified:
            self._last_error = (
                "it closed the connection: another version of FleetX, or another --job_secret"
            )
            select.select([], [], [], 0.2)
        return None

    # ---- while the workers run

    @property
    def is_first(self) -> bool:
        """Whether this is the first machine of the job: it is not."""
        return False

    def tell(self, note: Message) -> None:
        """Send a note to the first machine."""
        self._send({"type": "note", "note": note})

    def report(self, failure: Failure) -> None:
        """Report a failure on this machine to the first machine."""
        self._send({"type": "failed", "failure": failure.to_json()})

    def complete(self) -> None:
        """Report that this machine's workers have succeeded."""
        self._send({"type": "done"})

    def poll(self, idle: Idle) -> Verdict | None:
        """Process messages from the first machine."""
        assert self._line is not None
        self._line.last_heard += self._pace.pause()
        for message in self._line.pump():
            self._hear(message)
        self._beat(idle)
        if self._verdict is None and not self.finished:
            self._notice_loss()
        return self._verdict

    def _hear(self, message: Message) -> None:
        if message["type"] == "stop":
            failure = Failure.from_json(message["failure"])
            self._verdict = Verdict(failure, message["again"])
        elif message["type"] == "finished":
            self.finished = True
        elif message["type"] == "note":
            self._notes.append((0, checked_note(message)))

    def _notice_loss(self) -> None:
        assert self._line is not None
        assert self._cluster is not None
        failure = self._silence.loss_of(self._line, self._cluster, 0)
        self._verdict = None if failure is None else Verdict(failure)

    def _beat(self, idle: Idle) -> None:
        if self._pace.due():
            self._send({"type": "alive", "idle": idle.to_json()})

    def _send(self, message: Message) -> None:
        if self._line is not None and not self._line.closed:
            self._line.send({**message, "attempt": self.attempt})

    def share_stacks(self, text: str) -> list[str]:
        """Send this machine's stacks to the first one."""
        self._send({"type": "stacks", "text": text[-LONGEST_TEXT:]})
        return []

    def close(self) -> None:
        """Flush pending messages and close the connection."""
        if self._line is not None and not self._line.closed:
            self._line.flush()
            self._line.close()
