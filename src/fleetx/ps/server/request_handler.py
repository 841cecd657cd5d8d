"""The requests of workers, one at a time, without sockets.

One thread calls everything here, so requests take effect one after the other. Requests that have to
wait (for a step, for a barrier) are set aside and re-examined whenever the state has changed. No
message of a peer can end the server: everything is validated before it touches the state, an
invalid message is rejected with a reason and logged once, and an unexpected exception is answered
and logged with the peer.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

import torch

from fleetx.ps.server import table_requests
from fleetx.ps.server.durable_state import DurableState
from fleetx.ps.server.handover import hand_over
from fleetx.ps.server.listener import Listener
from fleetx.ps.server.moving import handover_folder
from fleetx.ps.server.reading import read
from fleetx.ps.server.saving import Saver
from fleetx.ps.server.server_settings import ServerSettings
from fleetx.ps.server.sessions import Refusals, Session, Sessions, refuse_given_up
from fleetx.ps.server.table_requests import Place
from fleetx.ps.server.waiting_requests import Waiting, WaitingRequests
from fleetx.ps.wire import liveness
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Assembler, Message, Tensors
from fleetx.ps.wire.liveness import Leases
from fleetx.ps.wire.messages import SEQUENCED, Flag, Header, Kind, Problem, WireError
from fleetx.ps.wire.shared_payloads import SharedReply

_log = logging.getLogger("fleetx.ps")
_REMEMBERED = 256


class RequestHandler:
    """A parameter server without its socket and its loop."""

    _replies: Listener

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._durable = DurableState(settings)
        self.state, self.epoch = self._durable.state, self._durable.epoch
        self._sessions = Sessions(settings.workers)
        self._leases = Leases(settings.workers, settings.lease)
        self._refusals = Refusals()
        self._assembler = Assembler()
        self._waiting = WaitingRequests()
        self._saver = Saver(settings.index, settings.servers)
        self._refused: deque[tuple[tuple[int, int], WireError]] = deque(maxlen=_REMEMBERED)
        self.unexpected = 0
        """The number of requests that failed with an unexpected exception."""
        self.failure: str | None = None
        """Why the job cannot continue; None while it can."""
        self.ends_at: float | None = None
        """When the server shuts down, by the monotonic clock."""
        self._handlers: dict[Kind, Callable[[Message, Session, bytes], None]] = {
            Kind.HEARTBEAT: self._heartbeat,
            Kind.PULL: self._conditional,
            Kind.WAIT: self._conditional,
            Kind.SAVE: self._conditional,
            Kind.HAND_OVER: self._conditional,
            Kind.CHANGED: self._changed,
            Kind.CLOCK: self._clock,
            Kind.STATUS: self._status,
            Kind.STOP: self._stop,
        }

    def connect(self, replies: Listener) -> None:
        """Set the way back to workers; call it before the first request."""
        self._replies = replies

    def close(self) -> None:
        """Finish pending writes."""
        self._saver.close()
        self._durable.close()

    def tell_alive(self) -> None:
        """Send a heartbeat to all workers."""
        for session in list(self._sessions):
            self._replies.send(session.route, self._reply_header(Kind.PULSE), [])

    def excuse(self, seconds: float) -> None:
        """Extend leases by a time in which no message could be received."""
        self._leases.excuse(seconds)

    def receive(self, route: bytes, frames: Sequence[memoryview], is_reader: bool = False) -> None:
        """Handle one part of a peer's message, which may be read-only; never raises."""
        peer = f"a peer ({route.hex()})"
        try:
            message = self._assembler.add(route, frames, limited=not self._sessions.has(route))
        except WireError as error:
            self._refusals.note(peer, error)
            if frames and wire.is_header(frames[0]):
                self._refuse(route, Header(Kind.ERROR, request=wire.request_of(frames[0])), error)
            return
        if message is None:
            return
        try:
            if is_reader or message.header.kind == Kind.READ:
                self._done(message, route, read(self.state, self._settings, message))
            else:
                self._handle(message, route)
        except Exception as error:
            peer = f"{'reader' if is_reader else f'worker {message.header.worker}'}, {peer}"
            self._reject(route, message.header, error, peer)

    def _reject(self, route: bytes, header: Header, error: BaseException, peer: str) -> None:
        """Answer and log a request that failed, expectedly or not."""
        if not isinstance(error, WireError):
            # A defect of the server: the peer gets an answer, and the server continues.
            self.unexpected += 1
            _log.error("A %s of %s failed.", header.kind.name, peer, exc_info=error)
            error = WireError(Problem.INTERNAL, f"it failed: {type(error).__name__}: {error}")
        self._refusals.note(peer, error)
        self._refuse(route, header, error)

    def _handle(self, message: Message, route: bytes) -> None:
        header = message.header
        if header.kind == Kind.HELLO:
            self._hello(message, route)
            return
        session = self._sessions.find(header, self.epoch)
        session.route = route
        if self._leases.renew(header.worker, session.name):
            _log.warning("%s is back.", session.name)
        if self.failure is not None and header.kind != Kind.HEARTBEAT:
            raise WireError(Problem.FAILED, self.failure)
        if header.flags & Flag.SHARED:
            if session.arena is None:
                raise WireError(Problem.BAD_REQUEST, "there is no shared memory with this worker")
            body = session.arena.view(header.offset, header.total)
            message.tensors = wire.read_tensors(message.shared, body)
            # Unless the worker holds its memory, it can change while it is logged and applied.
            is_logged = self._durable.is_logged and header.kind in SEQUENCED
            if (is_logged or header.flags & Flag.SYNC) and not header.flags & Flag.HELD:
                message.tensors = [(key, tensor.clone()) for key, tensor in message.tensors]
        if header.kind in SEQUENCED:
            self._sequenced(message, session, route)
        elif header.kind in self._handlers:
            self._handlers[header.kind](message, session, route)
        else:
            raise WireError(Problem.BAD_REQUEST, f"a server does not answer {header.kind.name}")

    def _hello(self, message: Message, route: bytes) -> None:
        header = message.header
        session, is_new = self._sessions.open(header, wire.read_json(message.tensors), route)
        if is_new:
            self._waiting.forget(header.worker)
            _log.info("%s has come.", session.name)
        self._leases.renew(header.worker, session.name)
        state = self.state
        welcome = {
            "applied": state.applied.get(header.worker, 0),
            "version": state.sync.version,
            "committed": state.sync.has_committed(header.worker),
            "finished": header.worker in state.finished,
            "clock": session.clock,
            "barriers": state.barriers_passed,
            "tables": state.numbers(),
            "values": state.names_with_values(),
            "shared": session.arena is not None,
            "index": self._settings.index,
            "failed": self.failure,
        }
        self._replies.send(route, self._reply_header(Kind.WELCOME, header), wire.json_body(welcome))

    def _sequenced(self, message: Message, session: Session, route: bytes) -> None:
        header, state = message.header, self.state
        last = state.applied.get(header.worker, 0)
        if header.sequence < 1:
            raise WireError(Problem.MALFORMED, "requests that change state are numbered from 1")
        if header.flags & Flag.FETCH and header.kind != Kind.PUSH:
            raise WireError(Problem.BAD_REQUEST, f"a {header.kind.name} brings no values back")
        if self._settings.elastic and header.worker in state.finished:
            refuse_given_up(header, last)
        if header.sequence <= last:
            refused = dict(self._refused).get((header.worker, header.sequence))
            if refused is not None:
                raise refused
            if header.flags & Flag.FETCH:
                table_requests.check(state.table(header.table), message)
            self._acknowledge(message, session, route)
            return
        if header.sequence != last + 1:
            raise WireError(
                Problem.OUT_OF_ORDER, f"number {header.sequence} came where {last + 1} was due"
            )
        try:
            self._durable.change(message, self._replies.busy)
        except WireError as error:
            self._refused.append(((header.worker, header.sequence), error))
            raise
        self._acknowledge(message, session, route)
        self._state_changed()

    def _acknowledge(self, message: Message, session: Session, route: bytes) -> None:
        """Acknowledge an applied request, with the new values if they were requested."""
        if message.header.flags & Flag.FETCH:
            self._give(message, session, route, self.state.pushed)
        else:
            self._done(message, route)

    def _give(
        self,
        message: Message,
        session: Session,
        route: bytes,
        values: Callable[[Message, Place], Tensors],
    ) -> None:
        """Reply with values, in shared memory if there is room."""
        with self._replies.busy():
            shared = SharedReply(message.header, session.arena)
            tensors = values(message, shared.place)
        self._done(message, route, tensors, shared if shared.is_used else None)

    def _state_changed(self) -> None:
        if len(self.state.finished) == self._settings.workers and self.ends_at is None:
            self.ends_at = time.monotonic() + self._settings.linger
        self._look_at_waiting()
        self._durable.snapshot_if_due(self._replies.busy)

    def _look_at_waiting(self) -> None:
        for waiting in self._waiting:
            try:
                if self._is_ready(waiting.message):
                    self._waiting.remove(waiting)
                    self._answer(waiting.message, waiting.session, waiting.route)
            except Exception as error:
                self._waiting.remove(waiting)
                self._reject(waiting.route, waiting.message.header, error, waiting.session.name)

    def _conditional(self, message: Message, session: Session, route: bytes) -> None:
        if self._is_ready(message):
            self._answer(message, session, route)
        else:
            self._waiting.add(Waiting(message, session, route))

    def _is_ready(self, message: Message) -> bool:
        header, state = message.header, self.state
        if header.kind == Kind.WAIT:
            return state.fulfils(wire.read_json(message.tensors))
        if header.kind == Kind.HAND_OVER:
            return state.is_still
        if header.flags & Flag.CLOCKED:
            there = self._leases.alive() & state.active
            return all(s.clock >= header.step for s in self._sessions if s.worker in there)
        return state.sync.version >= header.step

    def _answer(self, message: Message, session: Session, route: bytes) -> None:
        if message.header.kind == Kind.PULL:
            self._give(message, session, route, self.state.pull)
        elif message.header.kind == Kind.SAVE:
            self._save(message, session, route)
        elif message.header.kind == Kind.HAND_OVER:
            self._hand_over(message, route)
        elif message.header.kind == Kind.WAIT:
            condition = wire.read_json(message.tensors)
            if "barrier" in condition:
                notes = self.state.notes(condition["barrier"])
                self._done(message, route, wire.json_body(notes))
            else:
                squares = self.state.sync.squares(condition.get("squares", -1))
                self._done(message, route, [(0, torch.tensor([squares], dtype=torch.float64))])

    def _save(self, message: Message, session: Session, route: bytes) -> None:
        def tell(error: BaseException | None) -> None:
            if error is None:
                self._done(message, route)
            else:
                self._reject(route, message.header, error, session.name)

        with self._replies.busy():
            self._saver.save(self.state, message, tell)

    def _hand_over(self, message: Message, route: bytes) -> None:
        folder = handover_folder(message, self.state.move)
        with self._replies.busy():
            try:
                hand_over(self.state, folder, self._settings.index)
            except (OSError, ValueError) as error:
                raise WireError(
                    Problem.BAD_REQUEST, f"{str(folder)!r} cannot be written: {error}"
                ) from error
        self._done(message, route)

    def _changed(self, message: Message, session: Session, route: bytes) -> None:
        self._done(message, route, self.state.changed(message))

    def _clock(self, message: Message, session: Session, route: bytes) -> None:
        session.clock = max(session.clock, message.header.step)
        self._done(message, route)
        self._look_at_waiting()

    def _heartbeat(self, message: Message, session: Session, route: bytes) -> None:
        missing = self._leases.missing(self._needed())
        body = wire.json_body({"missing": liveness.sentence(missing), "failed": self.failure})
        self._replies.send(route, self._reply_header(Kind.PULSE, message.header), body)

    def _status(self, message: Message, session: Session, route: bytes) -> None:
        state = self.state
        status = {
            "epoch": self.epoch,
            "version": state.sync.version,
            "applied": {str(worker): last for worker, last in state.applied.items()},
            "finished": sorted(state.finished),
            "missing": self._leases.missing(state.active),
            "tables": state.numbers(),
            "values": state.names_with_values(),
            "refused": self._refusals.count,
            "move": None if state.move is None else state.move.to_json(),
        }
        self._done(message, route, wire.json_body(status))

    def _stop(self, message: Message, session: Session, route: bytes) -> None:
        self._done(message, route)
        self.ends_at = time.monotonic() + self._settings.linger

    def _needed(self) -> set[int]:
        """Return the workers that others are waiting for."""
        state = self.state
        needed = state.waits_for() if self._waiting else set()
        if any(waiting.message.header.kind == Kind.WAIT for waiting in self._waiting):
            needed |= {0} - state.finished  # its initial values may be awaited
        if not state.active & self._leases.alive():
            needed |= state.active
        return needed

    def tick(self) -> None:
        """Do what is due: expire leases, reply to finished saves, give up on lost workers."""
        for told in self._leases.expire():
            _log.warning("Server %d: %s.", self._settings.index, told)
            self._look_at_waiting()
        self._saver.tell_finished()
        if self._settings.elastic and not self.state.is_synchronous:
            self._go_on_without(self._leases.lost(self._needed(), self._settings.worker_wait))
        missing = self._leases.missing(self._needed())
        if self.failure is None and any(
            seconds > self._settings.worker_wait for seconds in missing.values()
        ):
            self._fail(f"server {self._settings.index} gave up: {liveness.sentence(missing)}.")

    def _go_on_without(self, lost: set[int]) -> None:
        """Mark lost workers as finished after others have waited long enough, unless all are
        lost.
        """
        if lost >= self.state.active and not self.state.finished:
            return
        for worker in lost:
            _log.warning("Server %d continues without worker %d.", self._settings.index, worker)
            # As if the worker had sent it: logged, and with the next of its numbers.
            header = Header(Kind.FINISH, worker=worker)
            header.sequence = self.state.applied.get(worker, 0) + 1
            self._durable.change(Message(header, []), self._replies.busy)
            self._state_changed()

    def _fail(self, reason: str) -> None:
        _log.error("%s", reason)
        self.failure = reason
        for waiting in self._waiting:
            error = WireError(Problem.FAILED, reason)
            self._refuse(waiting.route, waiting.message.header, error)
        self._waiting.clear()
        # Long enough for every worker to learn of it with its next heartbeat.
        self.ends_at = time.monotonic() + self._settings.linger + 2 * liveness.HEARTBEAT

    def _reply_header(self, kind: Kind, to: Header | None = None) -> Header:
        reply = Header(kind, epoch=self.epoch, step=self.state.sync.version)
        if self.state.move is not None:
            reply.flags = Flag.MOVING
        if to is not None:
            reply.request, reply.attempt, reply.worker = to.request, to.attempt, to.worker
            reply.sequence, reply.table = to.sequence, to.table
        return reply

    def _done(
        self,
        message: Message,
        route: bytes,
        tensors: Tensors | None = None,
        shared: SharedReply | None = None,
    ) -> None:
        header = self._reply_header(Kind.DONE, message.header)
        if message.header.kind == Kind.CREATE:
            header.table = self.state.number(wire.read_json(message.tensors).get("name"))
        if shared is None:
            self._replies.send(route, header, tensors or [])
        else:
            self._replies.send_frames(route, shared.frames(header))

    def _refuse(self, route: bytes, to: Header, error: WireError) -> None:
        header = self._reply_header(Kind.ERROR, to)
        header.problem = int(error.problem)
        self._replies.send(route, header, wire.json_body({"reason": str(error)[:2000]}))
