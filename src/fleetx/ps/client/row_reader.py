"""Read-only look-ups of rows on the servers of a running job, for a service.

    reader = RowReader(ServerPlaces(["10.0.0.1:6170"]), keys, seconds=2.0)
    rows = reader.read("user", ids, dim=16)

A look-up queries all servers at once and ends within its time limit. A server that has restarted is
found again by ZeroMQ; one that has moved by the job's layout folder. After a look-up has failed the
next ones wait only a moment until a server answers again, so that requests do not pile up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

import torch
import zmq
from torch import Tensor

from fleetx.ps.client.request import RefusedError
from fleetx.ps.wire import assembly
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Assembler, Message
from fleetx.ps.wire.client_socket import client_socket
from fleetx.ps.wire.messages import Header, Kind, WireError
from fleetx.ps.wire.partition import split_ids
from fleetx.ps.wire.security import ReaderKeys
from fleetx.runtime.layout_folder import LayoutFolder

# Below the servers' limit of a reply, for rows of 8 bytes per number.
_MOST_NUMBERS = 1 << 22
_MOST_IDS = 1 << 16
_RESEND = 0.5
_MOMENT = 0.1
_LOOK_FOR_MOVES = 1.0


class ServersUnavailableError(ConnectionError):
    """An error for rows that servers did not return in time; a retry may succeed."""


class ServerPlaces:
    """The addresses of the servers of a job: fixed, or read from its folder.

    Args:
        endpoints: the addresses of all servers, in their order; may be empty with a folder.
        folder: the job's folder with `layout.json`, which has the current addresses.
    """

    def __init__(self, endpoints: Sequence[str] = (), folder: LayoutFolder | None = None) -> None:
        if not endpoints and folder is None:
            raise ValueError("rows are read from at least one server (host:port).")
        self._endpoints, self._folder = tuple(endpoints), folder
        self._looked = -_LOOK_FOR_MOVES

    def now(self) -> tuple[str, ...]:
        """Return the addresses; those of a folder are looked up once a second."""
        if self._folder is not None and time.monotonic() - self._looked >= _LOOK_FOR_MOVES:
            self._looked = time.monotonic()
            layout = self._folder.read()
            if layout is None and not self._endpoints:
                raise ServersUnavailableError(
                    f"{self._folder.path} has no addresses of servers: the job has ended."
                )
            if layout is not None:
                self._endpoints = layout.endpoints
        return self._endpoints


class _Asked(NamedTuple):
    """A request to one server."""

    server: int
    header: Header
    tensors: assembly.Tensors
    places: Tensor
    reply: Future[Message]


class RowReader:
    """Look-ups with a time limit; may be used by several threads, one after the other.

    Args:
        places: where the servers are.
        keys: the keys of a reader; None for servers without keys.
        seconds: the time limit of a look-up.
    """

    def __init__(self, places: ServerPlaces, keys: ReaderKeys | None, *, seconds: float) -> None:
        self._places, self._keys, self._seconds = places, keys, seconds
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._lock = threading.Lock()
        self._endpoints: tuple[str, ...] = ()
        self._sockets: list[zmq.Socket[bytes]] = []
        self._assembler = Assembler()
        self._requests = 0
        self._is_well = True

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            self._connect(())
            self._context.term()

    def read(self, table: str, ids: Tensor, dim: int) -> Tensor:
        """Return the rows of ids (flat); an id without a row has the table's default row."""
        most = max(1, min(_MOST_IDS, _MOST_NUMBERS // dim))
        with self._lock:
            rows = [self._read(table, some, dim) for some in ids.split(most)]
        return torch.cat(rows)

    def _read(self, table: str, ids: Tensor, dim: int) -> Tensor:
        limit = time.monotonic() + (self._seconds if self._is_well else _MOMENT)
        asked = self._ask(table, ids)
        while not self._wait(asked, limit):
            # The servers have moved: those that have taken over get the same time.
            limit = time.monotonic() + self._seconds
            asked = self._ask(table, ids)
        self._is_well = True
        return _joined(asked, len(ids), table, dim)

    def _ask(self, table: str, ids: Tensor) -> list[_Asked]:
        endpoints = self._places.now()
        if endpoints != self._endpoints:
            self._connect(endpoints)
        name = torch.frombuffer(bytearray(table.encode()), dtype=torch.uint8)
        asked = []
        for server, places in enumerate(split_ids(ids, len(endpoints))):
            if len(places):
                self._requests += 1
                header = Header(Kind.READ, request=self._requests)
                place = torch.tensor([server, len(endpoints)])
                tensors = [(0, name), (1, place), (2, ids[places])]
                asked.append(_Asked(server, header, tensors, places, Future()))
        return asked

    def _connect(self, endpoints: tuple[str, ...]) -> None:
        for socket in self._sockets:
            socket.close(linger=0)
        self._sockets, self._endpoints = [], endpoints
        for endpoint in endpoints:
            socket = client_socket(self._context, endpoint, self._keys)
            socket.connect(f"tcp://{endpoint}")
            self._sockets.append(socket)

    def _wait(self, asked: list[_Asked], limit: float) -> bool:
        """Send requests, and resend them, until all have replies or the time limit is reached.

        Return False if the servers have moved meanwhile.
        """
        poller = zmq.Poller()
        for each in asked:
            poller.register(self._sockets[each.server], zmq.POLLIN)
        due = [0.0] * len(asked)
        while open_ones := [n for n, each in enumerate(asked) if not each.reply.done()]:
            now = time.monotonic()
            if self._places.now() != self._endpoints:
                return False
            if now > limit:
                self._is_well = False
                raise ServersUnavailableError(self._why([asked[n] for n in open_ones]))
            for number in open_ones:
                if due[number] <= now:
                    sent = self._send(asked[number])
                    due[number] = now + (_RESEND if sent else _MOMENT / 10)
            soonest = min(limit, now + _RESEND, *(due[number] for number in open_ones))
            for socket, _ in poller.poll(max(1, int(1000 * (soonest - now)))):
                self._receive(socket, asked)
        return True

    def _send(self, request: _Asked) -> bool:
        """Return whether a request was sent: there is a connection."""
        try:
            for frames in assembly.parts(request.header, request.tensors):
                self._sockets[request.server].send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def _receive(self, socket: zmq.Socket[bytes], asked: list[_Asked]) -> None:
        server = self._sockets.index(socket)
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
            message = self._assembler.add(server, [frame.buffer for frame in frames])
        except zmq.Again:
            return
        except WireError as error:
            raise RefusedError(f"the server at {self._endpoints[server]} sent: {error}.") from error
        if message is None:
            return
        found = [each for each in asked if each.header.request == message.header.request]
        if not found or found[0].reply.done():
            return  # of a look-up that was given up, or the reply to a repetition
        if message.header.kind == Kind.ERROR:
            reason = wire.read_json(message.tensors).get("reason")
            raise RefusedError(f"the server at {self._endpoints[server]} refused: {reason}.")
        found[0].reply.set_result(message)

    def _why(self, open_ones: list[_Asked]) -> str:
        names = ", ".join(f"{each.server} at {self._endpoints[each.server]}" for each in open_ones)
        return (
            f"the rows of this request are on live servers, and server {names} has not replied "
            f"within {self._seconds:g} seconds: it is down or does not accept the key; try again."
        )


def _joined(asked: list[_Asked], count: int, table: str, dim: int) -> Tensor:
    """Return the rows of all replies in the order of their ids."""
    found = [(each.places, each.reply.result().only()) for each in asked]
    dtype = found[0][1].dtype if found else torch.float32
    rows = torch.empty(count, dim, dtype=dtype)
    for places, values in found:
        if tuple(values.shape) != (len(places), dim):
            raise RefusedError(
                f"the servers' table {table!r} has rows of {values.shape[-1]} numbers, but the "
                f"model expects {dim}: serve the model that is being trained."
            )
        rows[places] = values
    return rows
