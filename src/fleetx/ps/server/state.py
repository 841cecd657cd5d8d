"""The state of a server: its tables, and the progress of every worker.

There are no sockets and files here: requests arrive as validated messages, so the log is replayed
through the same code. `check` rejects a request without side effects; `apply` is called once per
sequence number of a worker, in order, after the request has been logged.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from fleetx.ps.server import table_requests
from fleetx.ps.server.geo_changes import GeoChanges
from fleetx.ps.server.moving import Move, check_move, move_after
from fleetx.ps.server.sync_steps import SyncSteps
from fleetx.ps.server.table_requests import Place, new_tensors
from fleetx.ps.tables.dense_table import DenseTable
from fleetx.ps.tables.first_values import FirstValues
from fleetx.ps.tables.make_table import Table, create_table
from fleetx.ps.tables.row_memory import RowMemory
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.spec_checks import SpecError
from fleetx.ps.tables.table_spec import DenseTableSpec, TableSpec, spec_from_dict
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message, Tensors
from fleetx.ps.wire.messages import Flag, Kind, Problem, WireError

MAX_TABLES = 4096
# A worker waits at every barrier, so that it can be at the next one at most.
_BARRIERS_AHEAD = 2
# The bytes of an entry while its first value is made.
_ENTRY = 8

_log = logging.getLogger("fleetx.ps")


class ServerState:
    """The tables of one server and what has been applied to them."""

    def __init__(
        self,
        workers: int,
        specs: Iterable[TableSpec] = (),
        *,
        servers: int = 1,
        elastic: bool = False,
        first_values: FirstValues | None = None,
        memory: RowMemory | None = None,
    ) -> None:
        self.workers = workers
        self._is_elastic = elastic
        self._first_values = first_values or FirstValues(None)
        self._is_alone = servers == 1
        self._memory = memory
        self.tables: list[Table] = []
        self.applied: dict[int, int] = {}
        """The last sequence number of every worker."""
        self.sync = SyncSteps()
        self.finished: set[int] = set()
        self.has_values: set[int] = set()
        """The dense tables that have their initial values, by number."""
        self._numbers: dict[str, int] = {}
        self._changes = GeoChanges(workers)
        self._arrived: dict[int, set[int]] = {}
        self.barriers_passed = 0
        self._notes: dict[int, dict[int, Any]] = {}
        """The notes of workers at the last barrier and the following ones."""
        self.move: Move | None = None
        """The announced move of all tables to other servers."""
        self._apply: dict[Kind, Callable[[Message], None]] = {
            Kind.CREATE: self._create,
            Kind.SET: self._set,
            Kind.PUSH: self._push,
            Kind.ADD: self._add,
            Kind.COMMIT: self._commit,
            Kind.NORM: self._norm,
            Kind.ARRIVE: self._arrive,
            Kind.MOVE: self._move,
            Kind.FINISH: self._finish,
            Kind.VOID: lambda message: None,
        }
        for spec in specs:
            self._add_table(spec)
            self._fill(spec.name)

    @property
    def draws(self) -> bool:
        """Whether updates of a table draw random numbers."""
        return any(table.spec.optimizer.is_random for table in self.tables)

    @property
    def is_synchronous(self) -> bool:
        """Whether workers wait for each other's steps."""
        return self.sync.version > 0 or not self.sync.is_between_steps

    @property
    def active(self) -> set[int]:
        """The workers that have not finished."""
        return set(range(self.workers)) - self.finished

    def table(self, number: int) -> Table:
        """Return a table by its number."""
        if number >= len(self.tables):
            raise WireError(
                Problem.UNKNOWN_TABLE,
                f"there is no table {number}; this server has {sorted(self._numbers)}",
            )
        return self.tables[number]

    def number(self, name: object) -> int:
        """Return the number of a table."""
        if not isinstance(name, str) or name not in self._numbers:
            raise WireError(
                Problem.UNKNOWN_TABLE,
                f"there is no table {name!r}; this server has {sorted(self._numbers)}",
            )
        return self._numbers[name]

    def numbers(self) -> dict[str, int]:
        """Return the number of every table."""
        return dict(self._numbers)

    def names_with_values(self) -> list[str]:
        """Return the names of the dense tables that have their initial values."""
        return [name for name, number in self._numbers.items() if number in self.has_values]

    def fulfils(self, condition: dict[str, Any]) -> bool:
        """Return whether the condition that a worker waits for holds."""
        if len(condition) != 1:
            raise WireError(Problem.BAD_REQUEST, f"{condition} is not one condition")
        match condition:
            case {"version": int(version)}:
                return self.sync.version >= version
            case {"squares": int(step)}:
                return self.sync.squares(step) is not None
            case {"barrier": int(number)}:
                return self.barriers_passed >= number
            case {"values": str(name)}:
                return self._numbers.get(name) in self.has_values
        raise WireError(Problem.BAD_REQUEST, f"{condition} cannot be waited for")

    def check(self, message: Message) -> None:
        """Reject a request that cannot be applied."""
        header = message.header
        if header.kind == Kind.CREATE:
            spec = self._spec(message)
            table_requests.check_spec(spec)
            _require_memory(spec)
        elif header.kind in (Kind.SET, Kind.PUSH, Kind.ADD):
            table_requests.check(self.table(header.table), message)
        if header.kind == Kind.COMMIT or header.flags & Flag.SYNC:
            if header.step < 0:
                raise WireError(Problem.BAD_REQUEST, "synchronous training needs a step")
            if header.step > self.sync.version:
                raise WireError(
                    Problem.BAD_REQUEST,
                    f"step {header.step} was sent while step {self.sync.version} is not done",
                )
        if header.kind == Kind.MOVE:
            check_move(message, self.move, self.sync.version)
        if header.kind == Kind.ARRIVE:
            if message.tensors:
                wire.read_json(message.tensors)
            if header.step > self.barriers_passed + _BARRIERS_AHEAD:
                raise WireError(
                    Problem.BAD_REQUEST,
                    f"barrier {header.step} comes long after {self.barriers_passed}, the last one "
                    "that all workers have passed",
                )

    def apply(self, message: Message) -> None:
        """Apply a request and count it."""
        header = message.header
        self.applied[header.worker] = header.sequence
        if self.draws:
            torch.manual_seed(header.incarnation)  # see `DurableState.change`
        try:
            self._apply[header.kind](message)
        except Exception as error:
            # The same happens during replay, so the state remains a function of the log.
            _log.exception("A %s of worker %d failed.", header.kind.name, header.worker)
            raise WireError(Problem.BAD_REQUEST, f"it could not be applied: {error}") from error

    def _spec(self, message: Message) -> TableSpec:
        try:
            spec = spec_from_dict(wire.read_json(message.tensors))
        except SpecError as error:
            raise WireError(Problem.BAD_REQUEST, str(error)) from error
        known = self._numbers.get(spec.name)
        if known is not None and self.tables[known].spec != spec:
            raise WireError(
                Problem.BAD_REQUEST,
                f"table {spec.name!r} exists already and was described differently",
            )
        if known is None and len(self.tables) >= MAX_TABLES:
            raise WireError(Problem.BAD_REQUEST, f"a server has at most {MAX_TABLES} tables")
        return spec

    def _create(self, message: Message) -> None:
        spec = self._spec(message)
        if self._is_elastic:
            # A worker that creates its tables is at its start: it has come back.
            self.finished.discard(message.header.worker)
        if spec.name not in self._numbers:
            self._add_table(spec)
            self._fill(spec.name)

    def _fill(self, name: str) -> None:
        number = self._numbers[name]
        try:
            filled = self._first_values.fill(self.tables[number])
        except (OSError, ValueError):
            self.tables.pop()
            del self._numbers[name]
            raise
        if filled and isinstance(self.tables[number], DenseTable):
            self.has_values.add(number)

    def _add_table(self, spec: TableSpec) -> None:
        self.tables.append(create_table(spec, self._memory))
        self._numbers[spec.name] = len(self.tables) - 1

    def _set(self, message: Message) -> None:
        number = message.header.table
        # Worker 0 sends its initial values again if it is restarted.
        if number in self.has_values:
            return
        table = self.tables[number]
        assert isinstance(table, DenseTable)
        for block, value in table_requests.dense_values(table, message.tensors).items():
            table.assign(block, value)
        self.has_values.add(number)

    def _push(self, message: Message) -> None:
        table = self.tables[message.header.table]
        if message.header.flags & Flag.SYNC:
            self.sync.add(message, table)
        else:
            header = message.header
            clips = table_requests.clips_by_global_norm(table.spec)
            table_requests.push(
                table,
                message.tensors,
                rate=table_requests.known(header.rate),
                norm=table_requests.known(header.norm) if clips else None,
            )

    def _add(self, message: Message) -> None:
        number = message.header.table
        table_requests.add(self.tables[number], message.tensors)
        if isinstance(self.tables[number], SparseTable):
            self._changes.add(number, message.header.worker, message.tensors[0][1])

    def _commit(self, message: Message) -> None:
        self.sync.commit(message.header.worker, message.header.step)
        self._advance()

    def _norm(self, message: Message) -> None:
        self.sync.set_norm(message.header.step, message.header.norm)
        self._advance()

    def _advance(self) -> None:
        self.sync.advance(self.active, self.tables, alone=self._is_alone)

    def _arrive(self, message: Message) -> None:
        number = message.header.step
        if number > self.barriers_passed:
            self._arrived.setdefault(number, set()).add(message.header.worker)
            if message.tensors:
                notes = self._notes.setdefault(number, {})
                notes[message.header.worker] = wire.read_json(message.tensors)
            self._pass_barriers()

    def _pass_barriers(self) -> None:
        for number in sorted(self._arrived):
            if not self.active <= self._arrived[number]:
                break
            self.barriers_passed = number
            del self._arrived[number]
            self._notes = {n: notes for n, notes in self._notes.items() if n >= number}

    def notes(self, barrier: int) -> dict[str, Any]:
        """Return the notes of workers at a barrier, by worker."""
        return {str(worker): note for worker, note in self._notes.get(barrier, {}).items()}

    def _move(self, message: Message) -> None:
        self.move = move_after(message, self.move)

    @property
    def is_still(self) -> bool:
        """Whether tables move and all workers have stopped."""
        return self.move is not None and self.move.is_still(self.active, self.sync.version)

    def _finish(self, message: Message) -> None:
        self.finished.add(message.header.worker)
        self._advance()
        self._pass_barriers()

    def waits_for(self) -> set[int]:
        """Return the workers that others may be waiting for, in a step or at a barrier."""
        waiting = set() if self.sync.is_between_steps else self.sync.waits_for(self.active)
        for arrived in self._arrived.values():
            waiting |= self.active - arrived
        return waiting | (self.move.waits_for(self.active) if self.move else set())

    def pull(self, message: Message, place: Place = new_tensors) -> Tensors:
        """Return the requested values, in the tensors that `place` provides."""
        return table_requests.pull(self.table(message.header.table), message, place)

    def pushed(self, message: Message, place: Place) -> Tensors:
        """Return the values that a push of dense gradients has changed."""
        return table_requests.pushed(self.table(message.header.table), message, place)

    def changed(self, message: Message) -> Tensors:
        """Return ids and rows that other workers have changed, and the number of this reply."""
        table = self.table(message.header.table)
        if not isinstance(table, SparseTable):
            raise WireError(Problem.BAD_REQUEST, f"table {table.spec.name!r} has no rows")
        ids, cursor = self._changes.ask(
            message.header.table, message.header.worker, max(message.header.step, 0)
        )
        return [(0, ids), (1, table.pull(ids)), (2, torch.tensor([cursor]))]

    def capture(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return a copy of everything: (tensors, JSON-serializable rest)."""
        tensors = {
            f"table.{number}.{name}": tensor
            for number, table in enumerate(self.tables)
            for name, tensor in table.state_dict().items()
        }
        tensors |= {f"changes.{key}": ids for key, ids in self._changes.state_dict().items()}
        step, step_meta = self.sync.state_dict()
        tensors |= {f"step.{key}": tensor for key, tensor in step.items()}
        meta = {
            "workers": self.workers,
            "tables": [table.spec.to_dict() for table in self.tables],
            "applied": {str(worker): last for worker, last in self.applied.items()},
            "version": self.sync.version,
            "last_squares": self.sync.last_squares,
            "step": step_meta,
            "finished": sorted(self.finished),
            "has_values": sorted(self.has_values),
            "barriers_passed": self.barriers_passed,
            "arrived": {str(number): sorted(who) for number, who in self._arrived.items()},
            "notes": {str(number): self.notes(number) for number in self._notes},
            "move": None if self.move is None else self.move.to_json(),
        }
        return tensors, meta

    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Restore what `capture` returned."""
        self.tables.clear()
        self._numbers.clear()
        for number, spec in enumerate(meta["tables"]):
            self._add_table(spec_from_dict(spec))
            prefix = f"table.{number}."
            self.tables[number].load_state_dict(tensors_under(tensors, prefix))
        self._changes.load_state_dict(tensors_under(tensors, "changes."))
        self.applied = {int(worker): last for worker, last in meta["applied"].items()}
        self.sync.version = meta["version"]
        self.sync.last_squares = meta["last_squares"]
        self.finished = set(meta["finished"])
        if "step" in meta:  # earlier versions kept only states between two steps
            self.sync.load_state_dict(tensors_under(tensors, "step."), meta["step"])
            self._advance()
        self.has_values = set(meta["has_values"])
        self.barriers_passed = meta["barriers_passed"]
        self._arrived = {int(number): set(who) for number, who in meta["arrived"].items()}
        self._notes = {
            int(number): {int(worker): note for worker, note in notes.items()}
            for number, notes in meta["notes"].items()
        }
        self.move = Move.from_json(meta.get("move"))


def _require_memory(spec: TableSpec) -> None:
    """Reject a table that this machine cannot hold: what is logged must not fail to allocate."""
    if isinstance(spec, DenseTableSpec):
        size = _ENTRY * sum(block.size for block in spec.blocks)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if size > memory:
            raise WireError(
                Problem.TOO_LARGE,
                f"table {spec.name!r} needs {size} bytes here and this machine has {memory}",
            )


def tensors_under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
