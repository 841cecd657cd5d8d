"""The coordinator of an elastic job: a thread of the first launcher, to which all workers and the
launchers of other machines connect.

A worker whose process ends is noticed at once, because its connection closes; one that is frozen or
cut off after `timeout` seconds without a message. `Membership` decides what follows for workers,
`Machines` for launchers. The launcher itself never imports torch: groups of workers rendezvous at a
store that one of them hosts.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from typing import Any

from fleetx.launch.console import log
from fleetx.launch.elastic_machines import Machine, Machines
from fleetx.launch.elastic_membership import Membership, Message
from fleetx.launch.meeting import BEAT_EVERY, node_to_json
from fleetx.launch.records import INVALID
from fleetx.runtime.wire import Line

_TICK = 0.25
_VERIFY_WITHIN = 10.0
"""Seconds within which a connection must authenticate with the job's secret."""
_MOST_STRANGERS = 64


class _Peer:
    """A connection, and the worker or machine it belongs to once it has identified itself."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.number: int | None = None
        self.machine: Machine | None = None
        self.request: Message | None = None
        """The join message of a machine that waits for a free index."""

    @property
    def is_known(self) -> bool:
        """Whether it has identified itself."""
        return not (self.number is None and self.machine is None and self.request is None)

    @property
    def is_launcher(self) -> bool:
        """Whether it is the launcher of a machine."""
        return self.machine is not None or self.request is not None


class Coordinator:
    """Accepts workers and machines, monitors them and sends them the decisions."""

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        timeout: float,
        membership: Membership,
        machines: Machines,
    ) -> None:
        self._secret = secret
        self._timeout = timeout
        self._listener = listener
        self._listener.setblocking(False)
        self._wake, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._peers: dict[_Peer, None] = {}  # in the order of arrival
        self._by_number: dict[int, _Peer] = {}
        self._is_open = True
        self._announcements: deque[Message] = deque()
        self._membership = membership
        membership.tell = self._tell
        self.machines = machines
        self.state = membership.state
        """The state of the training, renewed by the thread."""
        self._thread = threading.Thread(target=self._serve, name="coordinator", daemon=True)
        self._thread.start()

    def announce(self, message: Message) -> None:
        """Send a message to the launchers of all machines; called by another thread."""
        self._announcements.append(message)
        self._waker.send(b"x")

    def close(self) -> None:
        """End the thread and close all connections."""
        self._is_open = False
        self._waker.send(b"x")
        self._thread.join()
        self._send_announcements()
        for peer in list(self._peers):
            peer.line.flush()
            peer.line.close()
        self._selector.close()
        for end in (self._listener, self._wake, self._waker):
            end.close()

    # ---- the thread

    def _serve(self) -> None:
        looked = beaten = time.monotonic()
        while self._is_open:
            events = self._selector.select(_TICK)
            now = time.monotonic()
            if now - looked > 4 * _TICK:  # this process was stopped itself
                for peer in self._peers:
                    peer.line.last_heard += now - looked
            looked = now
            for key, _ in events:
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._wake:
                    self._wake.recv(64)
                elif key.data in self._peers:
                    self._hear(key.data)
            self._drop_silent(now)
            self._give_places()
            self._publish()
            self._send_announcements()
            if now - beaten >= min(self._timeout / 5, BEAT_EVERY):
                beaten = now
                self._beat()

    def _publish(self) -> None:
        """Notify the launchers if the state of the job has changed."""
        state = self._membership.state
        if state != self.state:
            self.state = state
            self._tell_launchers({"type": "state", "state": state.to_json()})

    def _send_announcements(self) -> None:
        while self._announcements:
            message = self._announcements.popleft()
            self._tell_launchers(message)
            text = message.get("failure", {}).get("sentence", "The job has finished.")
            for peer in list(self._peers):
                if peer.request is not None:
                    peer.line.send({"type": "refuse", "text": text})

    def _tell_launchers(self, message: Message) -> None:
        for peer in list(self._peers):
            if peer.is_launcher:
                peer.line.send(message)

    def _beat(self) -> None:
        for peer in list(self._peers):
            if peer.request is not None:
                peer.line.send({"type": "alive", "missing": self.machines.full()})
            elif peer.is_known:
                peer.line.send({"type": "alive"})

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it has gone already
            connection, _ = self._listener.accept()
            if sum(not peer.is_known for peer in self._peers) >= _MOST_STRANGERS:
                connection.close()
                return
            peer = _Peer(Line(connection, self._secret, is_root=True))
            self._peers[peer] = None
            self._selector.register(connection, selectors.EVENT_READ, peer)

    def _hear(self, peer: _Peer) -> None:
        for message in peer.line.pump():
            try:
                self._obey(peer, message)
            except INVALID:
                log.warning("A worker or machine sent an invalid message: %.200r.", message)
                self._drop(peer)
                return
        if peer.line.closed:
            self._drop(peer)

    def _obey(self, peer: _Peer, message: dict[str, Any]) -> None:
        kind = message["type"]
        if peer.machine is not None and kind == "leave":
            log.warning("Machine %s has left the job.", peer.machine.node.host)
            self.machines.leave(peer.machine)
            peer.machine = None
            self._drop(peer)
        elif peer.machine is not None:
            self.machines.hear(peer.machine, message)
        elif peer.request is not None:
            return  # only a heartbeat
        elif kind == "join":
            self._let_join(peer, message)
        elif kind == "hello":
            self._let_enter(peer, message)
        elif peer.number is None:
            raise ValueError("the first message is hello or join")
        elif kind == "ready":
            self._membership.ready(peer.number, str(message["card"]))
        elif kind == "vote":
            self._membership.vote(peer.number, _checked_vote(message))
        elif kind == "leave":
            number, peer.number = peer.number, None
            self._by_number.pop(number, None)
            self._membership.leave(number)

    def _let_enter(self, peer: _Peer, message: Message) -> None:
        """Take a worker."""
        host, port = message["store"]
        number = int(message["number"])
        before = self._by_number.pop(number, None)
        if before is not None:
            before.number = None
            self._drop(before)
        peer.number = number
        self._by_number[number] = peer
        self._membership.enter(number, (str(host), int(port)))

    def _let_join(self, peer: _Peer, message: Message) -> None:
        """Take the launcher of a machine, which gets a place as soon as there is one."""
        reason = self.machines.refusal(message)
        if self._membership.is_ending:
            reason = "The job has finished; this machine came too late to take part."
        if reason is None:
            peer.request = message
            return
        peer.line.send({"type": "refuse", "text": reason})
        peer.line.flush()
        self._drop(peer)

    def _give_places(self) -> None:
        for peer in self._peers:
            if peer.request is None or self._membership.is_ending:
                continue
            machine = self.machines.enter(peer.request)
            if machine is None:
                return
            peer.machine, peer.request = machine, None
            log.info("Machine %s has joined the job.", machine.node.host)
            nodes = [node_to_json(node) for node in self.machines.nodes]
            start = {"type": "start", "this": machine.index, "nodes": nodes, "keys": None}
            peer.line.send({**start, "master": self._listener.getsockname()[:2]})
            peer.line.send({"type": "state", "state": self.state.to_json()})

    def _drop_silent(self, now: float) -> None:
        for peer in list(self._peers):
            patience = self._timeout if peer.is_known else _VERIFY_WITHIN
            if peer.line.closed:
                self._drop(peer)
            elif now - peer.line.last_heard > patience:
                if peer.number is not None:
                    log.warning(
                        "Worker %d was silent for %g s and is excluded (--elastic_timeout): it is "
                        "frozen, or its machine is cut off.",
                        peer.number,
                        patience,
                    )
                self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        if peer not in self._peers:
            return
        del self._peers[peer]
        number, peer.number = peer.number, None
        # A closed socket has no descriptor any more: the selector finds it by identity.
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer.line.socket)
        how = "its fleetrun ended" if peer.line.closed else "it is frozen or cut off"
        if not peer.line.closed:
            peer.line.close()
        if number is not None:
            self._by_number.pop(number, None)
            self._membership.lose(number)
        if peer.machine is not None:
            if not peer.machine.is_done:
                log.warning("Machine %s was lost: %s.", peer.machine.node.host, how)
            self.machines.leave(peer.machine)

    def _tell(self, number: int, message: Message) -> None:
        peer = self._by_number.get(number)
        if peer is not None:
            peer.line.send(message)


def _checked_vote(message: Message) -> Message:
    return {
        "generation": int(message["generation"]),
        "ok": bool(message["ok"]),
        "error": str(message.get("error", ""))[:2000],
        "position": message.get("position"),
    }
