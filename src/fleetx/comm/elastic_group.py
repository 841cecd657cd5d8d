"""The process group of a generation of an elastic job: formed, aborted, replaced in milliseconds.

It is torch's default group, so every collective of FleetX runs over the current workers. An
exchange that waits for a lost worker is aborted by shutting down the group's connections: Gloo
usually fails it at once, on all workers, and otherwise it is abandoned (`abortable_group.py`).
"""

from __future__ import annotations

import datetime
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from fleetx import torch_private
from fleetx.comm import abortable_group, world
from fleetx.comm.elastic_link import Formation

_TRY = datetime.timedelta(seconds=1)
"""How long torch tries to reach a store before we check whether the worker is lost."""
_CHUNK = 32 << 20
"""Bytes of state that are sent in one message."""


class ElasticGroup:
    """The group of the current generation, and the store that this worker hosts for others."""

    def __init__(self, host: str, timeout_seconds: float) -> None:
        self._timeout = datetime.timedelta(seconds=timeout_seconds)
        self._store = dist.TCPStore(
            host, 0, is_master=True, timeout=self._timeout, wait_for_workers=False
        )
        self.store = (host, self._store.port)
        """The address of this worker's store."""
        self._cutting = threading.Lock()
        self._before: set[str] | None = None
        """The sockets that were there before the group; None while there is no group."""
        self._own: set[str] | None = None
        """The sockets of the group, once it is formed."""

    def form(
        self, formation: Formation, is_broken: Callable[[], bool], within_seconds: float
    ) -> None:
        """Connect to the workers of a generation; raise RuntimeError if one of them is lost.

        Gloo waits for the connection of a frozen worker, which cannot be shut down before it is
        there: the time to connect is limited apart from that of exchanges.
        """
        self.leave()
        with self._cutting:
            self._before = {name for _, name in _sockets()}
        store = self._connect(formation.store, is_broken)
        torch_private.number_groups_anew()
        abortable_group.register(is_broken)
        dist.init_process_group(
            abortable_group.NAME,
            store=dist.PrefixStore(f"elastic/{formation.generation}", store),
            rank=formation.rank,
            world_size=formation.size,
            timeout=datetime.timedelta(seconds=within_seconds),
        )
        # A worker that is lost right now is noticed here, while all are still connecting.
        dist.barrier()
        torch_private.set_group_timeout(self._timeout)
        with self._cutting:
            self._own = {name for _, name in _sockets() if self._owns(name)}

    def _connect(self, address: tuple[str, int], is_broken: Callable[[], bool]) -> dist.TCPStore:
        """Connect to the store of a generation, unless the worker that hosts it was lost."""
        deadline = time.monotonic() + self._timeout.total_seconds()
        while True:
            if is_broken():  # `cut` may have come too early
                raise RuntimeError("a worker was lost before the group was formed")
            try:
                store = dist.TCPStore(
                    *address, is_master=False, timeout=_TRY, wait_for_workers=False
                )
            except (dist.DistNetworkError, dist.DistStoreError, TimeoutError):
                if time.monotonic() > deadline:
                    raise
            else:
                store.set_timeout(self._timeout)
                return store

    def cut(self) -> None:
        """Abort all exchanges of the group; called by the thread that learns of a loss."""
        with self._cutting:
            if self._before is None:
                return
            for descriptor, name in _sockets():
                if self._owns(name):
                    _shut_down(descriptor, self.store[1])

    def _owns(self, name: str) -> bool:
        """Return whether a socket belongs to the group; while it forms, every new one does."""
        if self._own is not None:
            return name in self._own
        return self._before is not None and name not in self._before

    def forget_in_child(self) -> None:
        """Close the group's connections in a forked process, such as one that loads data: they
        must close when the process that uses them ends."""
        if self._before is not None:
            for descriptor, name in list(_sockets()):
                if self._owns(name) and _is_tcp(descriptor):
                    os.close(descriptor)

    def leave(self) -> None:
        """Release the group."""
        with self._cutting:
            self._before = self._own = None
        world.leave_group()


def _sockets() -> Iterator[tuple[int, str]]:
    """Yield descriptors and names of all sockets of this process; a name is never used twice."""
    for entry in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{entry}")
        except FileNotFoundError:  # closed meanwhile
            continue
        if name.startswith("socket:"):
            yield int(entry), name


def _is_tcp(descriptor: int) -> bool:
    """Return whether a socket is one of the network; others connect processes of this machine."""
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        return copy.family in (socket.AF_INET, socket.AF_INET6)


def _shut_down(descriptor: int, own_store: int) -> None:
    """Shut down a TCP connection, unless it is one of this worker's store, which others use."""
    try:
        copy = socket.socket(fileno=os.dup(descriptor))
    except OSError:  # closed meanwhile
        return
    with copy:
        if copy.family not in (socket.AF_INET, socket.AF_INET6):
            return
        try:
            if copy.getsockname()[1] != own_store and copy.getpeername():
                copy.shutdown(socket.SHUT_RDWR)
        except OSError:  # it only listens, or the other side has closed it
            return


def broadcast_bytes(data: bytes | None, source: int) -> bytes:
    """Return the bytes of worker `source`; the others pass None."""
    size = torch.tensor([0 if data is None else len(data)])
    dist.broadcast(size, source)
    content = torch.empty(int(size), dtype=torch.uint8)
    if data is not None:
        content.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    dist.broadcast(content, source)
    return content.numpy().tobytes()


def broadcast_content(content: torch.Tensor | None, size: int, source: int) -> None:
    """Fill a flat tensor of `size` bytes with that of worker `source`.

    A worker that does not need it passes None and discards the received parts.
    """
    for start in range(0, size, _CHUNK):
        end = min(size, start + _CHUNK)
        part = (
            torch.empty(end - start, dtype=torch.uint8) if content is None else content[start:end]
        )
        dist.broadcast(part, source)
