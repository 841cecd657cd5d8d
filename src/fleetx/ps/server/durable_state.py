"""A server's state, and its persistence: a change is logged before it is applied.

Without a folder, the state is lost when the process ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fleetx.ps.server.handover import take_over, wait_until_whole
from fleetx.ps.server.saving import load
from fleetx.ps.server.server_settings import ServerSettings
from fleetx.ps.server.snapshots import Storage
from fleetx.ps.server.state import ServerState
from fleetx.ps.tables.first_values import FirstValues
from fleetx.ps.tables.row_memory import RowMemory
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import Kind, Problem, WireError

_log = logging.getLogger("fleetx.ps")

Busy = Callable[[], contextlib.AbstractContextManager[None]]
"""Lets heartbeats be sent during work that may take long."""


def _row_memory(settings: ServerSettings) -> RowMemory | None:
    if settings.memory is None:
        return None
    return RowMemory(settings.memory, settings.spill or tempfile.gettempdir())


class DurableState:
    """The state of a server, restored from its folder."""

    def __init__(self, settings: ServerSettings) -> None:
        self._index, self._servers = settings.index, settings.servers
        self.state = ServerState(
            settings.workers,
            settings.specs,
            servers=settings.servers,
            elastic=settings.elastic,
            memory=_row_memory(settings),
            first_values=FirstValues(
                settings.load_from, server=settings.index, servers=settings.servers
            ),
        )
        self._storage = Storage(settings.durability) if settings.durability else None
        self.epoch = self._storage.epoch if self._storage else time.time_ns() // 1_000_000
        """The number of this start of the server; larger than all before."""
        if self._storage is not None:
            self._recover(self._storage)
        if settings.take_over is not None and not (self._storage and self._storage.has_snapshot):
            self._take_over(Path(settings.take_over))

    def _take_over(self, folder: Path) -> None:
        # No worker can reach this server before: if it is killed, it repeats the takeover.
        wait_until_whole(folder, self._index)
        self.state.restore(*take_over(folder, self._index, self._servers))
        if self._storage is not None:
            self._storage.snapshot(self.state, wait=True)

    def _recover(self, storage: Storage) -> None:
        begun = time.monotonic()
        count = storage.recover(self.state)
        if self.epoch > 1:
            _log.warning(
                "Server %d, start %d: state restored, %d requests replayed, %.2f s.",
                self._index,
                self.epoch,
                count,
                time.monotonic() - begun,
            )

    @property
    def is_logged(self) -> bool:
        """Whether changes are logged."""
        return self._storage is not None

    def close(self) -> None:
        """Finish pending writes."""
        if self._storage is not None:
            self._storage.close()

    def change(self, message: Message, busy: Busy) -> None:
        """Log and apply a request.

        Raises WireError if it is refused; its sequence number counts as applied all the same.
        """
        try:
            self.state.check(message)
        except Exception:
            # The sequence number is used up anyway: later ones are already in flight.
            void = Message(dataclasses.replace(message.header, kind=Kind.VOID), [])
            self._append(void)
            self.state.apply(void)
            raise
        with busy():
            if message.header.kind == Kind.LOAD:
                self._load(message)
            else:
                if self.state.draws:
                    # Noise must come out the same when the log is replayed: a seed is logged in the
                    # place of the worker's incarnation, which matters to live requests only.
                    header = dataclasses.replace(message.header, incarnation=secrets.randbits(63))
                    message = Message(header, message.tensors)
                self._append(message)
                self.state.apply(message)

    def snapshot_if_due(self, busy: Busy) -> None:
        """Begin a snapshot if the log is long or old enough, between two steps."""
        storage = self._storage
        if storage is None or not (storage.is_snapshot_due and self.state.sync.is_between_steps):
            return
        with busy():
            try:
                storage.snapshot(self.state)
            except OSError as error:
                _log.error("A snapshot cannot be started and will be retried: %s.", error)

    def _append(self, message: Message) -> None:
        if self._storage is not None:
            try:
                self._storage.append(message)
            except OSError as error:
                raise self._refusal("log", error) from error

    def _load(self, message: Message) -> None:
        # A snapshot keeps what was loaded, for the files may be gone at a restart.
        try:
            request = wire.read_json(message.tensors)
            load(self.state, request, server=self._index, servers=self._servers)
        except (OSError, ValueError, RuntimeError) as error:
            raise WireError(Problem.BAD_REQUEST, f"it could not be loaded: {error}") from error
        finally:
            self.state.applied[message.header.worker] = message.header.sequence
            self._keep_loaded()

    def _keep_loaded(self) -> None:
        if self._storage is not None:
            try:
                self._storage.snapshot(self.state, wait=True)
            except OSError as error:
                raise self._refusal("keep", error) from error

    def _refusal(self, what: str, error: OSError) -> WireError:
        return WireError(Problem.STORAGE, f"server {self._index} cannot {what} it: {error}")
