"""A worker program's link to the servers: used by its ops `send`, `recv` and its look-ups.

It starts once the startup program has been run and `fleet.init_worker()` has been called, in either
order: worker 0 then sends the initial values, and every worker pulls them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fleetx.fleet.servers.fed_ids import FedIds, fed_tensor
from fleetx.fleet.servers.program_tables import ProgramTables
from fleetx.kernels.index import check_range, integer_ids
from fleetx.kernels.loss_scale import all_finite
from fleetx.ps.client.client import Client
from fleetx.ps.client.first_rows import MARKER, give_rows, marker_table
from fleetx.ps.client.row_fetcher import RowFetcher
from fleetx.ps.modes.mode import Mode
from fleetx.ps.modes.server_mode import ServerMode
from fleetx.runtime import heartbeat
from fleetx.static.graph.program import Program
from fleetx.static.run.scope import Scope

_log = logging.getLogger("fleetx.fleet")


class ServerLink:
    """The connection that the ops of one program use."""

    def __init__(
        self, mode: ServerMode, tables: ProgramTables, serve: Callable[[], None] | None = None
    ) -> None:
        self._settings = mode
        self.tables = tables
        self._serve = serve
        self._client: Client | None = None
        self._connect: Callable[[], Client] | None = None
        self._scope: Scope | None = None
        self._rows: dict[str, Tensor] = {}
        self._bound: dict[str, Tensor] = {}
        self._mode: Mode | None = None
        self._fetcher: RowFetcher | None = None
        self._fed_ids = FedIds()
        self._kept: dict[str, list[tuple[Tensor, Tensor, float | None]]] = {}
        self._is_stopped = False
        self.on_close: Callable[[], None] | None = None
        """Called when the executor that runs the program is closed."""

    @property
    def mode(self) -> Mode:
        """The exchange of this worker."""
        if self._mode is None and self._connect is not None:
            self.connect(self._connect())
        if self._mode is None:
            missing = (
                "call fleet.init_worker()"
                if self._client is None
                else "run fleet.startup_program with the executor"
            )
            raise RuntimeError(f"this worker has no values from the servers yet: {missing} first.")
        return self._mode

    @property
    def is_started(self) -> bool:
        """Whether this worker trains already."""
        return self._mode is not None

    # -- starting and stopping the exchange -------------------------------------------
    @property
    def is_running(self) -> bool:
        """Whether this worker exchanges with the servers."""
        return self._client is not None and not self._is_stopped

    def start_exchange(self) -> None:
        """Connect if necessary, and let runs send again."""
        self._is_stopped = False
        if self._client is None and self._connect is not None:
            self.connect(self._connect())

    def stop_exchange(self) -> None:
        """Send what is queued; runs that would send fail until `start_exchange`."""
        if self._mode is not None and not self._is_stopped:
            self._mode.settle()
        self._is_stopped = True

    def leave(self) -> None:
        """Record that the worker has disconnected."""
        self._is_stopped = True

    def _sending(self) -> Mode:
        if self._is_stopped:
            raise RuntimeError(
                "the exchange with the parameter servers was stopped: call the communicator's "
                "start() before the program runs again."
            )
        return self.mode

    # -- the start --------------------------------------------------------------------
    def connect(self, client: Client) -> None:
        """Use a client; start if the startup program has been run."""
        self._client = client
        if self._scope is not None:
            self._start(self._scope)

    def join(self, client: Callable[[], Client], *, at_once: bool = True) -> None:
        """Connect now, or when a value of the servers is first needed, depending on the mode; if
        not `at_once`, not before the startup program runs.
        """
        self._is_stopped = False
        if at_once and self._settings.waits_for_servers:
            self.connect(client())
        else:
            self._connect = client

    def give_rows(self, rows: Mapping[str, Tensor], scope: Scope) -> None:
        """Move the initial rows of tables from the scope to the servers."""
        self._rows = dict(rows)
        for name in rows:
            scope.var(name).value = None

    def startup_was_run(self, scope: Scope) -> None:
        """Record that variables are initialised; start if the worker is connected."""
        self._scope = scope
        if self._client is None and self._connect is not None and self._settings.waits_for_servers:
            self._client = self._connect()
        if self._client is not None:
            self._start(scope)

    def _start(self, scope: Scope) -> None:
        if self._mode is not None:
            return
        client = self._client
        assert client is not None
        constant = [*self.tables.frozen, marker_table(client.cut)]
        sparse = [table.spec for table in self.tables.sparse.values()]
        mode = self._settings.make(client, [*self.tables.dense, *constant], sparse)
        give_rows(client, sparse, self._rows)
        self._rows = {}
        self._bound = {name: _value(scope, name) for name in self.tables.dense_names}
        step = mode.start({**self._bound, MARKER: torch.ones(1)})
        mode.pull_dense()
        for specs in constant:
            mode.leave_out(specs[0].name)
        self._mode = mode
        if step:
            _log.warning("This worker continues at step %d of the job.", step)

    # -- the ops ----------------------------------------------------------------------
    def pull_rows(
        self,
        tables: Sequence[str],
        table_of_ids: Sequence[int],
        paddings: Sequence[int],
        ids: Sequence[Tensor],
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return per table the rows of its unique ids, per ids their places, per table the ids."""
        fetcher = self._row_fetcher()
        places: list[Tensor] = [torch.empty(0)] * len(ids)
        fetches = []
        for number, (table, padding) in enumerate(zip(tables, paddings, strict=True)):
            mine = [i for i, owner in enumerate(table_of_ids) if owner == number]
            flat = [self._checked(table, ids[i]) for i in mine]
            fetch = fetcher.fetch(table, flat[0] if len(flat) == 1 else torch.cat(flat), padding)
            fetches.append(fetch)
            for i, part in zip(mine, fetch.places.split([len(f) for f in flat]), strict=True):
                places[i] = part.view(ids[i].shape)
        with heartbeat.collective("rows from servers"):
            rows = [fetch.rows.wait() for fetch in fetches]
        for number, padding in enumerate(paddings):
            if padding >= 0:
                rows[number] = torch.cat([rows[number].new_zeros(1, rows[number].shape[1]),
                                          rows[number]])  # fmt: skip
        return rows, places, [fetch.keys for fetch in fetches]

    def _checked(self, table: str, ids: Tensor) -> Tensor:
        """Return the ids of a look-up, flat; if worker 0 gave the rows, ids must be among them."""
        flat = integer_ids(ids, table)
        declared = self.tables.sparse.get(table)
        if declared is not None and declared.given:
            check_range(flat, table, declared.rows)
        return flat

    def expect(self, program: Program, feed: Mapping[str, Any]) -> None:
        """Prefetch the rows of the next run, whose feed is already known.

        This covers only ids that are fed directly, not computed ones.
        """
        if self._mode is None:
            return
        fetcher = self._row_fetcher()
        for table, names, padding in self._fed_ids.of(program):
            ids = [fed_tensor(feed.get(name)) for name in names]
            if all(each is not None for each in ids):
                flat = [each.reshape(-1).long() for each in ids if each is not None]
                fetcher.expect(table, torch.cat(flat), padding)

    def _row_fetcher(self) -> RowFetcher:
        if self._fetcher is None:
            self._fetcher = RowFetcher(self.mode)
        return self._fetcher

    def push_rows(self, table: str, keys: Tensor, gradient: Tensor, rate: float | None) -> None:
        """Pass the gradients of rows; if there is one more than keys, it belongs to the padding."""
        rows = gradient[len(gradient) - len(keys) :]
        self._sending().push_sparse(table, keys, rows, rate=rate)

    def keep_rows(self, table: str, keys: Tensor, gradient: Tensor, rate: float | None) -> None:
        """Keep the gradients of rows for the end of the step, several runs later."""
        rows = gradient[len(gradient) - len(keys) :]
        self._kept.setdefault(table, []).append((keys, rows, rate))

    def push_dense(self, gradients: Mapping[str, Tensor], rate: float | None) -> None:
        """Pass the gradients of parameters."""
        self._sending().push_dense(gradients, rate=rate)

    def end_step(self) -> None:
        """End the step: all its gradients have been passed."""
        mode = self._sending()
        kept, self._kept = self._kept, {}
        for table, parts in kept.items():
            keys, rows, rates = zip(*parts, strict=True)
            mode.push_sparse(table, torch.cat(keys), torch.cat(rows), rate=rates[-1])
        with heartbeat.collective("end of the step on servers"):
            mode.step_end()

    def agree_on_overflow(self, overflow: bool) -> bool:
        """Return whether the step overflowed on any synchronous worker, or in stored gradients of
        rows, which are then dropped; in synchronous training all workers must call it.
        """
        kept = [rows for parts in self._kept.values() for _, rows, _ in parts]
        overflow = overflow or not all_finite(kept)
        if self._settings.kind == "sync":
            notes = self.mode.client.gather({"action": "a step", "value": int(overflow)})
            overflow = any(note["value"] for note in notes.values())
        if overflow:
            self._kept = {}
        return overflow

    def pull_dense(self, values: Mapping[str, Tensor]) -> None:
        """Pull the parameters, in place."""
        self._follow(values)
        with heartbeat.collective("parameters from servers"):
            self.mode.pull_dense()

    def _follow(self, values: Mapping[str, Tensor]) -> None:
        # Running the startup program again, or loading, puts other tensors into the scope.
        if any(self._bound[name] is not value for name, value in values.items()):
            self._bound.update(values)
            self.mode.bind(self._bound)

    def close(self) -> None:
        """The executor of the program is closed."""
        if self.on_close is not None:
            self.on_close()

    def serve(self) -> None:
        """Run the server."""
        assert self._serve is not None
        self._serve()

    # -- saving -----------------------------------------------------------------------
    def refresh(self) -> None:
        """Fetch the parameters as they are now."""
        assert self._scope is not None
        self._follow({name: _value(self._scope, name) for name in self.tables.dense_names})
        self.mode.settle()
        self.mode.refresh_dense()

    def whole_table(self, name: str) -> Tensor:
        """Return all declared rows of a table."""
        self.mode.settle()
        count = self.tables.sparse[name].rows
        parts = [
            self.mode.client.pull_sparse(name, torch.arange(start, min(start + _CHUNK, count)))
            for start in range(0, count, _CHUNK)
        ]
        return torch.cat(parts)


_CHUNK = 1 << 16


def _value(scope: Scope, name: str) -> Tensor:
    found = scope.find_var(name)
    if found is None or not isinstance(found.value, Tensor):
        raise RuntimeError(f"parameter {name!r} has no value: run fleet.startup_program first.")
    return found.value
