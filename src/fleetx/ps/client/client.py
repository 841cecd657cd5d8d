"""A worker's view of all servers: tables by name, values in whole tensors.

    client = Client(["127.0.0.1:6170", "127.0.0.1:6171"], worker=0, workers=2)
    client.create(specs)                       # one specification per server, or one for all
    rows = client.pull_sparse("embedding", ids)
    client.push_sparse("embedding", ids, gradients)
    client.finish()

Methods whose names begin with `start_` return a `Pending` immediately; the tensors passed to them
must not be modified until its `wait()` has returned.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fleetx.kernels.index import merge_rows
from fleetx.ps.client.job_requests import JobRequests
from fleetx.ps.client.pending import Pending, nothing
from fleetx.ps.client.request import ClientSettings, RefusedError, Request
from fleetx.ps.tables.table_spec import DenseTableSpec, SparseTableSpec, TableSpec
from fleetx.ps.tables.usage import check_served
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import NO_STEP, Flag, Header, Kind
from fleetx.ps.wire.partition import split_ids, spread
from fleetx.runtime.layout_folder import ServerLayout

__all__ = ["Client", "ClientSettings", "Pending", "RefusedError"]


class Client(JobRequests):
    """Connections to all servers of a job, and the tables on them."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        worker: int = 0,
        workers: int = 1,
        settings: ClientSettings | None = None,
    ) -> None:
        super().__init__(endpoints, worker, workers, settings or ClientSettings())
        self._specs: dict[str, list[TableSpec]] = {}
        self._numbers: dict[str, list[int]] = {}
        self._cursors: dict[tuple[str, int], int] = {}

    # -- tables ---------------------------------------------------------------------------------

    def create(self, specs: TableSpec | Sequence[DenseTableSpec]) -> None:
        """Create a table on the servers if it does not exist yet.

        A sparse table has one specification for all servers; a dense one has one per server, each
        with the blocks that this server holds, or held before tables moved.
        """
        if isinstance(specs, Sequence) and len(specs) != self.cut:
            raise ValueError(f"{len(specs)} specifications were given for {self.cut} servers.")
        each = _placed(specs, self.servers, moved=self.generation > 0)
        check_served(each[0])
        self._create(each)

    def _create(self, each: list[TableSpec]) -> None:
        futures = [
            self._ask(server, Kind.CREATE, wire.json_body(spec.to_dict()))
            for server, spec in enumerate(each)
        ]
        self._numbers[each[0].name] = [future.result().header.table for future in futures]
        self._specs[each[0].name] = each

    def _number(self, table: str, server: int) -> int:
        if table not in self._numbers:
            raise KeyError(f"Table {table!r} was not created; known: {sorted(self._numbers)}.")
        return self._numbers[table][server]

    # -- dense values ---------------------------------------------------------------------------

    def _blocks(self, table: str, server: int) -> list[str]:
        spec = self._specs[table][server]
        if not isinstance(spec, DenseTableSpec):
            raise TypeError(f"Table {table!r} is sparse.")
        return [block.name for block in spec.blocks]

    def start_dense(
        self,
        kind: Kind,
        table: str,
        values: Mapping[str, Tensor],
        *,
        step: int = NO_STEP,
        rate: float | None = None,
        norm: float | None = None,
        flags: Flag = Flag.NONE,
        out: Mapping[str, Tensor] | None = None,
    ) -> Pending[None]:
        """Send values by block: gradients (PUSH), deltas (ADD) or initial values (SET).

        The new values of the same blocks after a push are written to the tensors of `out`.
        """
        if out is not None:
            flags |= Flag.FETCH
        futures, known = [], set()
        for server in range(self.servers):
            number = self._number(table, server)
            names = self._blocks(table, server)
            known.update(names)
            tensors = [
                (key, wire.prepare(values[name]))
                for key, name in enumerate(names)
                if name in values
            ]
            if tensors:
                header = Header(kind, flags, table=number, step=step)
                header.rate, header.norm = _or_nan(rate), _or_nan(norm)
                request = Request(header, tensors, held=bool(flags & Flag.SYNC))
                if out is not None:
                    request.out = [out[name] for name in names if name in values]
                    request.room = wire.body_size(request.specs)
                futures.append(self._network.submit(server, request))
        if not known >= values.keys():
            raise KeyError(f"Table {table!r} has no blocks {sorted(values.keys() - known)}.")
        return Pending(futures, nothing)

    def start_pull_dense(
        self,
        table: str,
        out: Mapping[str, Tensor],
        *,
        step: int = NO_STEP,
        flags: Flag = Flag.NONE,
    ) -> Pending[None]:
        """Request the values of blocks; they are written to the tensors of `out`."""
        futures = []
        for server in range(self.servers):
            number = self._number(table, server)
            wanted = [
                (key, out[name])
                for key, name in enumerate(self._blocks(table, server))
                if name in out
            ]
            if not wanted:
                continue
            header = Header(Kind.PULL, flags, table=number, step=step)
            keys = torch.tensor([key for key, _ in wanted])
            room = wire.body_size(wire.lay_out(wanted))
            request = Request(header, [(0, keys)], room=room, out=[tensor for _, tensor in wanted])
            futures.append(self._network.submit(server, request))
        return Pending(futures, nothing)

    def set_dense(self, table: str, values: Mapping[str, Tensor]) -> None:
        """Set the initial values of a table; later calls, by any worker, have no effect."""
        self.start_dense(Kind.SET, table, values).wait()

    def push_dense(
        self, table: str, gradients: Mapping[str, Tensor], *, rate: float | None = None
    ) -> None:
        """Push gradients by block and wait until they are applied."""
        self.start_dense(Kind.PUSH, table, gradients, rate=rate).wait()

    def pull_dense(self, table: str) -> dict[str, Tensor]:
        """Return the values of all blocks."""
        out = {
            block.name: torch.empty(block.shape, dtype=getattr(torch, spec.dtype))
            for spec in self._specs[table]
            if isinstance(spec, DenseTableSpec)
            for block in spec.blocks
        }
        self.start_pull_dense(table, out).wait()
        return out

    def wait_for_values(self, table: str) -> None:
        """Wait until a dense table has its initial values on all servers."""
        futures = [
            self._ask(server, Kind.WAIT, wire.json_body({"values": table}))
            for server in range(self.servers)
            if self._blocks(table, server)
        ]
        for future in futures:
            future.result()

    # -- rows -----------------------------------------------------------------------------------

    def _sparse(self, table: str) -> SparseTableSpec:
        self._number(table, 0)
        spec = self._specs[table][0]
        if not isinstance(spec, SparseTableSpec):
            raise TypeError(f"Table {table!r} is dense.")
        return spec

    def _split(self, ids: Tensor) -> list[Tensor]:
        # With one server there is nothing to look up or copy.
        return [ids] if self.servers == 1 else split_ids(ids, self.servers)

    def start_pull_sparse(
        self, table: str, ids: Tensor, *, step: int = NO_STEP, flags: Flag = Flag.NONE
    ) -> Pending[Tensor]:
        """Request the rows of ids (any shape, may repeat): a tensor of ids.shape + (dim,)."""
        spec = self._sparse(table)
        flat = wire.prepare(ids).reshape(-1)
        places = self._split(flat)
        asked = [server for server, place in enumerate(places) if len(place)]
        width = spec.dim * getattr(torch, spec.dtype).itemsize
        is_whole = self.servers == 1
        futures = []
        for server in asked:
            header = Header(Kind.PULL, flags, table=self._number(table, server), step=step)
            place = places[server]
            wanted = flat if self.servers == 1 else flat[place]
            request = Request(header, [(0, wanted)], room=len(place) * width)
            futures.append(self._network.submit(server, request))

        def finish(messages: list[Message]) -> Tensor:
            if is_whole and messages:
                return messages[0].only().reshape(*ids.shape, spec.dim)
            rows = torch.empty(len(flat), spec.dim, dtype=getattr(torch, spec.dtype))
            for server, message in zip(asked, messages, strict=True):
                rows[places[server]] = message.only()
            return rows.reshape(*ids.shape, spec.dim)

        return Pending(futures, finish)

    def pull_sparse(self, table: str, ids: Tensor) -> Tensor:
        """Return the rows of ids."""
        return self.start_pull_sparse(table, ids).wait()

    def start_sparse(
        self,
        kind: Kind,
        table: str,
        ids: Tensor,
        rows: Tensor,
        *,
        step: int = NO_STEP,
        rate: float | None = None,
        norm: float | None = None,
        flags: Flag = Flag.NONE,
    ) -> Pending[None]:
        """Send rows by id: gradients (PUSH) or deltas (ADD); rows of equal ids are added."""
        spec = self._sparse(table)
        flat = wire.prepare(ids).reshape(-1)
        values = wire.prepare(rows).reshape(len(flat), spec.dim)
        merged, sums, counts = merge_rows(flat, values)
        futures = []
        for server, place in enumerate(self._split(merged)):
            if len(place):
                header = Header(kind, flags, step=step)
                header.rate, header.norm = _or_nan(rate), _or_nan(norm)
                header.table = self._number(table, server)
                parts = (merged, sums, counts)
                if self.servers > 1:
                    parts = (merged[place], sums[place], counts[place])
                tensors = list(enumerate(parts))
                request = Request(header, tensors, held=bool(flags & Flag.SYNC))
                futures.append(self._network.submit(server, request))
        return Pending(futures, nothing)

    def push_sparse(
        self, table: str, ids: Tensor, gradients: Tensor, *, rate: float | None = None
    ) -> None:
        """Push gradients of rows and wait until they are applied."""
        self.start_sparse(Kind.PUSH, table, ids, gradients, rate=rate).wait()

    def changed(self, table: str) -> tuple[Tensor, Tensor]:
        """Return ids and values of the rows changed by other workers' deltas."""
        self._sparse(table)
        futures = [
            self._ask(
                server,
                Kind.CHANGED,
                table=self._number(table, server),
                step=self._cursors.get((table, server), 0),
            )
            for server in range(self.servers)
        ]
        ids, rows = [], []
        for server, future in enumerate(futures):
            (_, some), (_, values), (_, cursor) = future.result().tensors
            self._cursors[table, server] = int(cursor)
            ids.append(some)
            rows.append(values)
        return torch.cat(ids), torch.cat(rows)

    def switch_to(self, layout: ServerLayout) -> None:
        """Leave all servers for those that have taken over, with the same tables."""
        super().switch_to(layout)
        self._cursors.clear()
        for specs in list(self._specs.values()):
            self._create(_placed(specs, self.servers, moved=True))


def _placed(
    specs: TableSpec | Sequence[TableSpec], servers: int, *, moved: bool
) -> list[TableSpec]:
    """Return the specification per server, where tables may have moved to another number."""
    each = list(specs) if isinstance(specs, Sequence) else [specs]
    first = each[0]
    if not isinstance(first, DenseTableSpec):
        return [first] * servers
    if not moved:
        return each
    blocks = [b for spec in each if isinstance(spec, DenseTableSpec) for b in spec.blocks]
    return [dataclasses.replace(first, blocks=tuple(own)) for own in spread(blocks, servers)]


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
