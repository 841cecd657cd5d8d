"""A worker's connection to the coordinator of an elastic job.

A thread sends heartbeats and receives messages, so that a worker stays a member during a long
computation and is notified of a lost peer while it waits for it in an exchange.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from fleetx.runtime.elastic_environment import ElasticPlace
from fleetx.runtime.wire import Line, Message

_CONNECT_WITHIN = 60.0
_CUT_AGAIN = 0.05
_FORM_WITHIN = 10.0
_NEWS_WITHIN = 5.0


class ExcludedError(Exception):
    """An error for a worker that no longer belongs to the job."""


class JobFinishedError(Exception):
    """An error for a new worker whose job has finished without it."""


class JobFailedError(Exception):
    """An error for workers of a job that cannot continue; its text gives the reason."""


@dataclass(frozen=True)
class Formation:
    """A generation of the job, as one of its workers sees it."""

    generation: int
    rank: int
    size: int
    store: tuple[str, int]
    """The address of the store at which it rendezvouses."""
    source: int
    """The rank that has the state of the training."""
    fresh: tuple[int, ...]
    """The ranks that need it."""
    steps: int
    """The steps that the job has finished."""


@dataclass(frozen=True)
class Verdict:
    """The result of a step: whether all workers have finished it, and whether the group changes."""

    finished: bool
    regroup: bool


class CoordinatorLink:
    """The connection; `on_broken` is called in its thread if the current generation is broken."""

    def __init__(
        self,
        place: ElasticPlace,
        number: int,
        store: tuple[str, int],
        on_broken: Callable[[], None],
    ) -> None:
        self._timeout = place.timeout
        self._on_broken = on_broken
        self._changed = threading.Condition()
        self._answers: list[Message] = []
        self._generation = 0
        self._is_broken = False
        self._deadline: float | None = None
        self._is_closing = False
        connection = socket.create_connection(place.coordinator, _CONNECT_WITHIN)
        self._line = Line(connection, place.secret, is_root=False)
        self._sending = threading.Lock()
        self._wake, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, name="elastic", daemon=True)
        self._send({"type": "hello", "number": number, "store": list(store)})
        self._thread.start()

    def forget_in_child(self) -> None:
        """Close the connection in a forked process: it must close when this process ends."""
        for end in (self._line.socket, self._wake, self._waker):
            end.close()

    @property
    def is_broken(self) -> bool:
        """Whether a worker of the current generation was lost, or its exchange failed."""
        with self._changed:
            return self._is_broken

    def wait_until_broken(self) -> bool:
        """Wait a moment for the news of a lost worker, which may come after its exchange fails."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_broken, _NEWS_WITHIN)

    @property
    def form_within(self) -> float:
        """The seconds in which a generation has to form."""
        return max(self._timeout, _FORM_WITHIN)

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """Break the generation if the block, in which it forms, takes too long."""
        with self._changed:
            self._deadline = time.monotonic() + self.form_within
        try:
            yield
        finally:
            with self._changed:
                self._deadline = None

    def join(self, card: str) -> Formation:
        """Wait for the next generation with this worker in it.

        It begins when all its workers have come here, which may take as long as a step of the
        slowest one. The wait ends if the coordinator is silent.
        """
        self._send({"type": "ready", "card": card})
        found = self._await("form")
        return Formation(
            int(found["generation"]),
            int(found["rank"]),
            int(found["size"]),
            (str(found["store"][0]), int(found["store"][1])),
            int(found["source"]),
            tuple(map(int, found["fresh"])),
            int(found["steps"]),
        )

    def vote(self, *, error: str = "", position: Any = None) -> Verdict:
        """Report whether this worker has done its part of the step; return whether all have."""
        message = {"type": "vote", "generation": self._generation, "ok": not error}
        self._send({**message, "error": error, "position": position})
        while True:
            found = self._await("verdict")
            if found["generation"] == self._generation:
                return Verdict(bool(found["finished"]), bool(found["regroup"]))

    def leave(self) -> None:
        """Report that this worker has finished, and disconnect."""
        self.close({"type": "leave"})

    def close(self, last: Message | None = None) -> None:
        """Disconnect, after a last message; without one this worker counts as lost."""
        with self._changed:
            if self._is_closing:
                return
            self._is_closing = True
        if last is not None:
            self._send(last)
            with self._sending:
                self._line.flush()
        self._waker.send(b"x")
        self._thread.join()
        self._line.close()
        self._wake.close()
        self._waker.close()

    # ---- both threads

    def _send(self, message: Message) -> None:
        with self._sending:
            if not self._line.closed:
                self._line.send(message)

    def _await(self, kind: str) -> Message:
        """Return the next answer of a kind; raise if this worker is no member any more."""
        with self._changed:
            while True:
                for message in self._answers:
                    if message["type"] == kind:
                        self._answers.remove(message)
                        return message
                    _raise_if_over(message)
                if self._line.closed:
                    raise ExcludedError("the coordinator of the job has closed the connection")
                self._changed.wait(1.0)

    # ---- the thread

    def _listen(self) -> None:
        pause = self._timeout / 5
        beaten = 0.0
        while not self._is_closing:
            messages: list[Message] = []
            # What connects just now is cut as soon as it is there.
            limit = _CUT_AGAIN if self._is_broken else pause
            watched = [self._wake] if self._line.closed else [self._wake, self._line.socket]
            with suppress(ValueError):  # the socket was closed meanwhile
                select.select(watched, [], [], limit)
            with self._sending:
                if not self._line.closed:
                    messages = self._line.pump()
                    now = time.monotonic()
                    if now - beaten >= pause and not self._line.closed:
                        beaten = now
                        self._line.send({"type": "alive"})
                    if now - self._line.last_heard > self._timeout and not self._line.closed:
                        self._line.close()
            self._take(messages)

    def _take(self, messages: list[Message]) -> None:
        with self._changed:
            for message in messages:
                if message["type"] == "form":
                    # From here on a loss concerns this generation, even if it is not formed yet.
                    self._generation, self._is_broken = int(message["generation"]), False
                if message["type"] == "broken":
                    self._is_broken = message["generation"] == self._generation
                elif message["type"] != "alive":
                    self._answers.append(message)
            # Nobody waits for a worker that is excluded, or for a group that does not form.
            is_late = self._deadline is not None and time.monotonic() > self._deadline
            self._is_broken = self._is_broken or is_late or self._line.closed
            is_broken = self._is_broken
            self._changed.notify_all()
        if is_broken and not self._is_closing:
            self._on_broken()


def _raise_if_over(message: Message) -> None:
    if message["type"] == "finished":
        raise JobFinishedError
    if message["type"] == "refuse":
        raise JobFailedError(str(message["text"]))
