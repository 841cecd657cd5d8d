"""The socket by which a client reaches a server."""

from __future__ import annotations

import zmq

from fleetx.ps.wire.messages import MAX_FRAME
from fleetx.ps.wire.security import JobKeys, ReaderKeys, secure_client


def client_socket(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: str, keys: JobKeys | ReaderKeys | None
) -> zmq.Socket[bytes]:
    """Return a socket that is yet to be connected to a server; with keys, to a holder of the
    servers' key only.
    """
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.immediate = 1
    socket.maxmsgsize = MAX_FRAME
    socket.reconnect_ivl, socket.reconnect_ivl_max = 50, 500
    socket.ipv6 = "[" in endpoint
    if keys is not None:
        secure_client(socket, keys)
    return socket
