"""The coordinator of an elastic job: a thread of the first launcher, to which all workers connect.

A worker whose process ends is noticed at once, because its connection closes; one that is frozen
or cut off after `timeout` seconds without a message. What follows from that is decided by
`Membership`. The launcher itself never imports torch: groups of workers rendezvous at a store that
one of them keeps.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from typing import Any

from fleetx.launch.console import log
from fleetx.launch.elastic_membership import Membership, Message
from fleetx.runtime import network
from fleetx.runtime.wire import Line

_TICK = 0.25
_VERIFY_WITHIN = 10.0
"""Seconds in which a connection has to show the job's secret."""
_MOST_STRANGERS = 64


class _Peer:
    """A connection, and the worker it belongs to once it has said so."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.number: int | None = None


class Coordinator:
    """Accepts workers, watches them and tells them the generations that `Membership` decides."""

    def __init__(
        self, address: tuple[str, int], secret: bytes, expected: int, least: int, timeout: float
    ) -> None:
        self._secret = secret
        self._timeout = timeout
        self._listener = network.listen(*address)
        self._listener.setblocking(False)
        self._wake, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._peers: set[_Peer] = set()
        self._by_number: dict[int, _Peer] = {}
        self._is_open = True
        self.membership = Membership(expected, least, self._tell)
        self._thread = threading.Thread(target=self._serve, name="coordinator", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close all connections."""
        self._is_open = False
        self._waker.send(b"x")
        self._thread.join()
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
                elif key.data is not None:
                    self._hear(key.data)
            self._drop_silent(now)
            if now - beaten >= self._timeout / 5:
                beaten = now
                for peer in list(self._by_number.values()):
                    peer.line.send({"type": "alive"})

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it has gone already
            connection, _ = self._listener.accept()
            if sum(peer.number is None for peer in self._peers) >= _MOST_STRANGERS:
                connection.close()
                return
            peer = _Peer(Line(connection, self._secret, is_root=True))
            self._peers.add(peer)
            self._selector.register(connection, selectors.EVENT_READ, peer)

    def _hear(self, peer: _Peer) -> None:
        for message in peer.line.pump():
            try:
                self._obey(peer, message)
            except (KeyError, TypeError, ValueError):
                log.warning("A worker sent a message that is not one: %.200r.", message)
                self._drop(peer)
                return
        if peer.line.closed:
            self._drop(peer)

    def _obey(self, peer: _Peer, message: dict[str, Any]) -> None:
        if message["type"] == "hello":
            host, port = message["store"]
            number = int(message["number"])
            before = self._by_number.pop(number, None)
            if before is not None:
                before.number = None
                self._drop(before)
            peer.number = number
            self._by_number[number] = peer
            self.membership.enter(number, (str(host), int(port)))
        elif peer.number is None:
            raise ValueError("the first message is hello")
        elif message["type"] == "ready":
            self.membership.ready(peer.number, str(message["card"]))
        elif message["type"] == "vote":
            self.membership.vote(peer.number, _checked_vote(message))
        elif message["type"] == "leave":
            number, peer.number = peer.number, None
            self._by_number.pop(number, None)
            self.membership.leave(number)

    def _drop_silent(self, now: float) -> None:
        for peer in list(self._peers):
            patience = self._timeout if peer.number is not None else _VERIFY_WITHIN
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
        self._peers.discard(peer)
        number, peer.number = peer.number, None
        # A closed socket has no descriptor any more: the selector finds it by identity.
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer.line.socket)
        if not peer.line.closed:
            peer.line.close()
        if number is not None:
            self._by_number.pop(number, None)
            self.membership.lose(number)

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
