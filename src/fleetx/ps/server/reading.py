"""Look-ups by clients that may only read, such as a service: no session, nothing changes.

A request has the name of a table, the place that the reader takes this server for (its index and
the number of servers), and ids. A reader with a wrong list of servers would ask for ids that are
elsewhere and get default rows, so the place is checked.
"""

from __future__ import annotations

import torch

from fleetx.ps.server.server_settings import ServerSettings
from fleetx.ps.server.state import ServerState
from fleetx.ps.server.table_requests import sparse_vector
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.wire.assembly import Message, Tensors
from fleetx.ps.wire.messages import Kind, Problem, WireError

MOST_BYTES = 64 << 20
"""The largest reply; readers ask for more in several requests."""
_LONGEST_NAME = 4096


def read(state: ServerState, settings: ServerSettings, message: Message) -> Tensors:
    """Return the rows that a reader asks for; reject all other requests of it."""
    kind = message.header.kind
    if kind != Kind.READ:
        raise WireError(
            Problem.BAD_REQUEST, f"the key of a reader is for looking up rows, not for {kind.name}"
        )
    if len(message.tensors) != 3:
        raise WireError(Problem.MALFORMED, "a READ has a name, a place and ids")
    (_, name), (_, place), (_, ids) = message.tensors
    if name.dtype != torch.uint8 or name.dim() != 1 or name.numel() > _LONGEST_NAME:
        raise WireError(Problem.MALFORMED, "the name of a table is a list of bytes")
    if place.dtype != torch.int64 or tuple(place.shape) != (2,):
        raise WireError(Problem.MALFORMED, "the place of a server is two numbers")
    index, servers = place.tolist()
    if (index, servers) != (settings.index, settings.servers):
        raise WireError(
            Problem.BAD_REQUEST,
            f"this is server {settings.index} of {settings.servers}, not {index} of {servers}: "
            "name all servers of the job, in their order",
        )
    table = state.table(state.number(bytes(name.numpy()).decode(errors="replace")))
    if not isinstance(table, SparseTable):
        raise WireError(Problem.BAD_REQUEST, f"the table {table.spec.name!r} has no rows by id")
    ids = sparse_vector(table, ids)
    if len(ids) * table.spec.dim * table.dtype.itemsize > MOST_BYTES:
        raise WireError(Problem.TOO_LARGE, f"{len(ids)} rows are more than {MOST_BYTES} bytes")
    return [(0, table.read(ids))]
