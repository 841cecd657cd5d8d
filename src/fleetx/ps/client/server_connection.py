"""A worker's connection to one server: sends requests, resends lost ones, survives restarts.

Everything here runs on the client's network thread; other threads only queue requests and wait for
their futures. A request is pending until its reply arrives. It is resent if the reply takes too
long, if the connection was lost, and if the server was restarted (which its epoch shows); requests
that change state keep their sequence number, so the server can tell a repetition from a new
request.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket as network
import time
from collections import OrderedDict, deque
from concurrent.futures import Future
from typing import Any

import zmq
import zmq.utils.monitor

from fleetx.ps.client.request import ClientSettings, RefusedError, Request
from fleetx.ps.client.round_trip import RoundTrip
from fleetx.ps.wire import assembly, liveness
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Assembler, Message, Tensors
from fleetx.ps.wire.client_socket import client_socket
from fleetx.ps.wire.liveness import PeerLostError
from fleetx.ps.wire.messages import SEQUENCED, Flag, Header, Kind, Problem, WireError
from fleetx.ps.wire.shared_bodies import SharedBodies
from fleetx.ps.wire.shared_payloads import Arena
from fleetx.runtime import heartbeat

_log = logging.getLogger("fleetx.ps")
_SLOWEST_LINK = 50e6
_LONGEST_RESEND = 10.0
_REPEAT_PAUSE = 0.02
_FATAL = (Problem.OLD_INCARNATION, Problem.FAILED, Problem.STORAGE, Problem.VERSION)
_FATAL_TO_HELLO = (*_FATAL, Problem.BAD_REQUEST, Problem.MALFORMED)
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class ServerConnection:
    """The connection to one server."""

    def __init__(
        self,
        index: int,
        endpoint: str,
        context: zmq.Context[zmq.Socket[bytes]],
        worker: int,
        workers: int,
        settings: ClientSettings,
    ) -> None:
        self.index = index
        self.endpoint = endpoint
        self._worker, self._workers, self._settings = worker, workers, settings
        self.incarnation = settings.incarnation or time.time_ns() // 1_000_000
        self.queue: deque[Request] = deque()
        self.welcome: Future[dict[str, Any]] = Future()
        self.clock = -1
        self.is_moving = False
        self.error: Exception | None = None
        self._pending: OrderedDict[int, Request] = OrderedDict()
        self._unsent: deque[Request] = deque()
        self._requests = 0
        self._sequence: int | None = None
        self._acknowledged = 0
        self._epoch = 0
        self._is_welcome = False
        self._hello_at = self._sent_at = self._repeated_at = 0.0
        self._round_trip = RoundTrip()
        self._connected_since: float | None = None
        self._told_lost = False
        self._told_missing = ""
        self._lost_since = self._heard = time.monotonic()
        self._assembler = Assembler()
        self._random = random.Random((settings.drop_seed << 16) + index)
        self._shared = SharedBodies(
            Arena(settings.shared_bytes) if settings.shared_memory else None
        )
        self.socket = client_socket(context, endpoint, settings.keys)
        self.socket.sndhwm = 0
        self.monitor = self.socket.get_monitor_socket(_EVENTS)
        self.socket.connect(f"tcp://{endpoint}")

    def move_to(self, endpoint: str) -> None:
        """Connect to another address of the server; pending requests are resent after its
        welcome.
        """
        self.socket.disconnect(f"tcp://{self.endpoint}")
        self.endpoint = endpoint
        self._is_welcome = False
        self.socket.connect(f"tcp://{endpoint}")

    @property
    def name(self) -> str:
        """The name of the server in messages."""
        return f"server {self.index} at {self.endpoint}"

    def close(self) -> None:
        """Close the connection."""
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close()
        self.fail(RuntimeError(f"The connection to {self.name} was closed."))
        self._shared.close()

    def fail(self, error: Exception) -> None:
        """Fail all pending and future requests with this error."""
        self.error = self.error or error
        for request in [*self._pending.values(), *self._unsent, *self.queue]:
            if not request.future.done():
                request.future.set_exception(error)
        self._pending.clear()
        self._unsent.clear()
        self.queue.clear()
        if not self.welcome.done():
            self.welcome.set_exception(error)

    # -- connection events ----------------------------------------------------------------------

    def on_monitor(self) -> None:
        """Handle connections made and lost."""
        while self.monitor.poll(0):
            event = zmq.utils.monitor.recv_monitor_message(self.monitor)
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._connected_since = self._heard = time.monotonic()
                self._told_lost = False
                self._say_hello()
            elif self._connected_since is not None:
                self._connected_since = None
                self._lost_since = time.monotonic()
                self._is_welcome = False

    def excuse(self, seconds: float) -> None:
        """Extend deadlines by a time in which this process itself was suspended."""
        self._heard += seconds
        self._lost_since += seconds

    def tick(self) -> None:
        """Do what is due: hello, heartbeat, resends, timeouts."""
        now = time.monotonic()
        if self.error is not None:
            return
        if self._connected_since is None:
            self._check_lost(now - self._lost_since)
            return
        silent = now - self._heard
        is_lost = silent > min(self._settings.lease, self._settings.server_wait)
        if is_lost:
            self._wait(
                silent,
                f"{self.name} has not replied for {silent:.1f} s although it is connected: it is "
                "stopped (kill -CONT continues it), overloaded, or the network is cut",
            )
        elif self._told_lost:
            self._told_lost = False
            _log.warning("%s answers again.", self.name)
        if not self._is_welcome:
            if now - self._hello_at > self._settings.resend:
                self._say_hello()
            return
        if now - self._sent_at > liveness.HEARTBEAT:  # every message renews the lease
            self._put(Header(Kind.HEARTBEAT), [])
        if is_lost:
            return  # the connection still holds all requests
        for request in [request for request in self._pending.values() if request.due < now]:
            self._send(request)

    def _wait(self, seconds: float, problem: str) -> None:
        """Log once that this worker waits for the server, and give up after `server_wait`."""
        wait = self._settings.server_wait
        # This wait has its own limit: it must not be taken for a hang.
        heartbeat.show_life()
        if seconds > wait:
            self.fail(
                PeerLostError(f"{problem}. Waited {wait:g} s (--server_wait, FLEETX_SERVER_WAIT).")
            )
        elif not self._told_lost:
            self._told_lost = True
            _log.warning("Waiting up to %g s (--server_wait): %s.", wait, problem)

    def _check_lost(self, seconds: float) -> None:
        if self.is_finishing and seconds > self._settings.lease / 2:
            # It has shut down because the last worker disconnected; only the reply is missing.
            for request in list(self._pending.values()):
                self._settle(request, Message(Header(Kind.DONE), []))
        if seconds > min(self._settings.lease / 2, self._settings.server_wait):
            self._wait(
                seconds, f"{self.name} could not be reached for {seconds:.0f} s: start it (again)"
            )

    @property
    def is_finishing(self) -> bool:
        """Whether this worker has disconnected and no pending request is being waited for."""
        # Rows of a step that never ran may have been prefetched.
        rest = [r for r in self._pending.values() if r.header.kind != Kind.PULL]
        return bool(rest) and all(r.header.kind == Kind.FINISH and r.attempt >= 0 for r in rest)

    def _say_hello(self) -> None:
        self._hello_at = time.monotonic()
        self._is_welcome = False
        hello = {
            "workers": self._workers,
            "process": os.getpid(),
            "host": network.gethostname(),
            "shared": self._shared.offer(),
            "clock": self.clock,
        }
        self._put(Header(Kind.HELLO), wire.json_body(hello))

    # -- requests -------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send queued requests."""
        while self.queue:
            request = self.queue.popleft()
            if self.error is not None:
                request.future.set_exception(self.error)
                continue
            self._unsent.append(request)
        while self._unsent and self._is_welcome:
            request = self._unsent.popleft()
            self._requests += 1
            request.header.request = self._requests
            if request.header.kind in SEQUENCED:
                assert self._sequence is not None
                self._sequence += 1
                request.header.sequence = self._sequence
            self._pending[self._requests] = request
            self._send(request)

    def _send(self, request: Request) -> None:
        request.attempt += 1
        header = request.header
        header.attempt = min(request.attempt, 65535)
        size = wire.body_size(request.specs)
        wait = max(self._settings.resend, self._round_trip.unusual) * 2 ** min(request.attempt, 10)
        wait = min(wait, _LONGEST_RESEND) + (size + request.room) / _SLOWEST_LINK
        request.sent = time.monotonic()
        request.due = request.sent + wait
        if self._shared.place(request, size):
            assert request.body is not None
            header.flags |= Flag.SHARED | (Flag.HELD if request.held else Flag.NONE)
            header.offset, header.total = request.body
            header.part, header.parts = 0, 1
            self._identify(header)
            self._emit([header.pack(), wire.pack_specs(request.specs), b""])
        else:
            header.flags &= ~(Flag.SHARED | Flag.HELD)
            self._put(header, request.tensors)

    def _identify(self, header: Header) -> None:
        header.worker, header.incarnation = self._worker, self.incarnation
        header.epoch = self._epoch

    def _put(self, header: Header, tensors: Tensors) -> None:
        self._identify(header)
        for frames in assembly.parts(header, tensors):
            self._emit(frames)

    def _emit(self, frames: list[Any]) -> None:
        # Without a connection nothing is sent; all pending requests follow the next welcome.
        with contextlib.suppress(zmq.Again):
            self.socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
            self._sent_at = time.monotonic()

    # -- replies --------------------------------------------------------------------------------

    def on_readable(self) -> None:
        """Receive and handle messages."""
        while int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:  # the connection was lost in between
                return
            if self._settings.drop and self._random.random() < self._settings.drop:
                continue
            try:
                message = self._assembler.add(self.index, [frame.buffer for frame in frames])
            except WireError as error:
                self.fail(RefusedError(f"{self.name} sent an unreadable message: {error}."))
                return
            if message is not None:
                self._heard = time.monotonic()
                self._on_message(message)

    def _on_message(self, message: Message) -> None:
        header = message.header
        self.is_moving = self.is_moving or bool(header.flags & Flag.MOVING)
        if header.kind == Kind.WELCOME:
            self._on_welcome(header, wire.read_json(message.tensors))
            return
        if header.kind == Kind.ERROR and not header.request and header.problem in _FATAL_TO_HELLO:
            reason = wire.read_json(message.tensors).get("reason")
            self.fail(RefusedError(f"{self.name} rejected this worker: {reason}."))
            return
        if header.kind == Kind.ERROR and header.problem == Problem.NEED_HELLO:
            if self._is_welcome:
                self._say_hello()
            return
        if header.epoch != self._epoch:
            return  # from an earlier server process, or before the welcome
        if header.kind == Kind.PULSE:
            self._on_pulse(message)
            return
        self._shared.applied(header.step)
        request = self._pending.get(header.request)
        if header.kind == Kind.ERROR:
            self._on_error(message, request)
        elif request is not None:
            self._settle(request, message)

    def _on_welcome(self, header: Header, welcome: dict[str, Any]) -> None:
        applied = welcome["applied"]
        if self._sequence is None:
            self._sequence = self._acknowledged = applied
        elif applied < self._acknowledged:
            self.fail(
                PeerLostError(
                    f"{self.name} was started again without {self._acknowledged - applied} "
                    "requests that it had acknowledged: give servers a folder to keep their state "
                    "in (durability)."
                )
            )
            return
        if header.epoch != self._epoch:
            self._shared.restart(list(self._pending.values()))
        self._epoch = header.epoch
        self._shared.is_open = bool(welcome.get("shared"))
        self._is_welcome = True
        if not self.welcome.done():
            self.welcome.set_result(welcome)
        for request in list(self._pending.values()):
            self._send(request)

    def _on_pulse(self, message: Message) -> None:
        if not message.tensors:
            return
        told = wire.read_json(message.tensors)
        missing = told.get("missing") or ""
        if missing:
            heartbeat.show_life()  # the servers limit this wait
            if not self._told_missing:
                _log.warning("Waiting: %s.", missing)
        self._told_missing = missing
        if told.get("failed"):
            self.fail(PeerLostError(told["failed"]))

    def _on_error(self, message: Message, request: Request | None) -> None:
        problem = message.header.problem
        reason = wire.read_json(message.tensors).get("reason")
        if problem == Problem.OUT_OF_ORDER:
            self._repeat_sequenced()
        elif problem in _FATAL:
            kind = PeerLostError if problem == Problem.FAILED else RefusedError
            self.fail(kind(f"{self.name} cannot continue: {reason}."))
        elif request is not None:
            error = RefusedError(f"{self.name} rejected a {request.header.kind.name}: {reason}.")
            self._forget(request, is_applied=True)
            request.future.set_exception(error)
        else:
            _log.warning("%s rejected a message: %s.", self.name, reason)

    def _repeat_sequenced(self) -> None:
        now = time.monotonic()
        # After one lost message, the server complains about all that follow it.
        if now - self._repeated_at > _REPEAT_PAUSE:
            self._repeated_at = now
            for request in list(self._pending.values()):
                if request.header.kind in SEQUENCED:
                    self._send(request)

    def _settle(self, request: Request, message: Message) -> None:
        if not self._shared.read(request, message):
            return
        if request.out is not None:
            for into, (_, tensor) in zip(request.out, message.tensors, strict=True):
                into.copy_(tensor)
        elif message.header.flags & Flag.SHARED:
            message.tensors = [(key, tensor.clone()) for key, tensor in message.tensors]
        if request.attempt == 0:
            self._round_trip.add(time.monotonic() - request.sent)
        self._forget(request, is_applied=message.header.step > request.header.step)
        request.future.set_result(message)

    def _forget(self, request: Request, *, is_applied: bool) -> None:
        del self._pending[request.header.request]
        if request.header.kind in SEQUENCED:
            self._acknowledged = max(self._acknowledged, request.header.sequence)
        self._shared.release(request, is_applied=is_applied)
