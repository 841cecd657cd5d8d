"""A table of rows by 64-bit ids: one server's shard of an embedding without a fixed size.

A row and its optimizer state form one record, in blocks of memory that never move. A pull changes
nothing: an id without a row reads as its initial value, which depends only on the seed and the id.
Only pushes create rows, count and evict, so a snapshot and a log of pushes reproduce the table.
Every method holds the table's lock, so a table can be used by several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterator, Mapping

import torch
from torch import Tensor

from fleetx.kernels.gradients import square_norm
from fleetx.kernels.index import IdIndex, check_ids, merge_rows
from fleetx.kernels.row_initializer import RowInitializer
from fleetx.ps.tables.admission import create_admission
from fleetx.ps.tables.default_row import default_row
from fleetx.ps.tables.recent_lookups import RecentLookups
from fleetx.ps.tables.row_memory import RowMemory
from fleetx.ps.tables.row_optimizers import RowOptimizer
from fleetx.ps.tables.row_records import Columns, RowRecords
from fleetx.ps.tables.rule_update import clipped
from fleetx.ps.tables.state_check import check_state
from fleetx.ps.tables.table_spec import SparseTableSpec
from fleetx.ps.tables.usage import LATEST, Usage

# The index memory per id by which a memory limit is converted to a number of rows. An index needs
# at most 20 bytes today, but a log that is replayed must evict the rows that it evicted at first.
_INDEX_BYTES = 24
_ROWS_PER_PIECE = 1 << 16
# New rows are written in pieces that fit into the CPU caches: a large push needs little memory.
_NEW_ROWS_PER_PIECE = 1 << 12

# Changes rows, given by their numbers and values for them.
Apply = Callable[[Tensor, Tensor], None]


class SparseTable:
    """Rows, their optimizer and their admission rule."""

    def __init__(self, spec: SparseTableSpec, memory: RowMemory | None = None) -> None:
        self.spec = spec
        self._memory = memory
        self.dtype: torch.dtype = getattr(torch, spec.dtype)
        self._lock = threading.RLock()
        self._first_rows = RowInitializer(
            spec.initializer.kind,
            spec.initializer.settings,
            seed=spec.row_seed,
            dim=spec.dim,
            dtype=self.dtype,
        )
        self._clear()

    def _clear(self) -> None:
        """Reset everything that pushes change."""
        spec = self.spec
        self._optimizer = RowOptimizer(spec.optimizer, dim=spec.dim, dtype=self.dtype)
        self._admission = create_admission(spec.entry, seed=spec.row_seed)
        self._usage = None if spec.eviction is None else Usage(spec.eviction)
        self._index = IdIndex()
        self._recent = RecentLookups()
        columns = {"Param": spec.dim, **self._optimizer.columns}
        self._records = RowRecords(spec.name, columns, self.dtype, self._memory)
        self._clock = 0

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        """The memory of rows, state and index, in bytes."""
        per_row = self._records.size + (0 if self._usage is None else Usage.bytes_per_row)
        waiting = 0 if self._admission is None else self._admission.nbytes
        return per_row * self._index.row_limit + self._index.nbytes + waiting

    @property
    def clock(self) -> int:
        """The time stamp of pushes, from 0 to 2**32 - 1: the number of regular searches for
        expired rows so far, or any unit if the script sets it."""
        return self._clock

    @clock.setter
    def clock(self, value: int) -> None:
        if not isinstance(value, int) or not 0 <= value <= LATEST:
            raise ValueError(f"the clock of a table must be from 0 to {LATEST}, not {value!r}.")
        self._clock = value

    # -- training ---------------------------------------------------------------------------------
    def pull(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Return the rows of ids, which may repeat; if `out` is given, fill and return it."""
        ids = check_ids(ids)
        if out is None:
            out = torch.empty(len(ids), self.spec.dim, dtype=self.dtype)
        else:
            self._check_rows(out, len(ids), "out")
        rows, knows_all = self._look_up(ids, out, will_push=True)
        if self._admission is None and not knows_all:
            missing = (rows < 0).nonzero().reshape(-1)
            out[missing] = self._first_rows(ids[missing])
        return out

    def read(self, ids: Tensor) -> Tensor:
        """Return the rows of ids for a reader: one that has none reads as the default row."""
        ids = check_ids(ids)
        out = torch.empty(len(ids), self.spec.dim, dtype=self.dtype)
        out[self._look_up(ids, out)[0] < 0] = default_row(self.spec)
        return out

    def _look_up(self, ids: Tensor, out: Tensor, *, will_push: bool = False) -> tuple[Tensor, bool]:
        """Write the rows of ids into `out`.

        Returns their numbers, -1 for ids without one, and whether there are no such ids.
        """
        with self._lock:
            rows = self._index.lookup(ids)
            # Before reading rows, which displaces ids and row numbers from the cache.
            knows_all = not len(rows) or int(rows.min()) >= 0
            if will_push and knows_all:
                self._recent.keep(ids, rows)
            self._records.read(rows, "Param", out)
        return rows, knows_all

    def push(
        self,
        ids: Tensor,
        grads: Tensor,
        *,
        rate: float | None = None,
        norm: float | None = None,
        counts: Tensor | None = None,
    ) -> None:
        """Update rows with their gradients; gradients of equal ids are added first.

        `rate` is the learning rate, the optimizer's own if None. `norm` is the norm to clip by
        if the gradient is distributed over several servers or tables. `counts` gives how often each
        id occurred before the caller merged it, for admission and scores.
        """
        rate = self.spec.optimizer.rate if rate is None else float(rate)
        clip, scale = self.spec.optimizer.clip, self._optimizer.scale(rate)
        if scale is not None and clip is None and self._counts_nothing:
            self._add_in_order(ids, grads, counts, scale)
            return
        ids, grads, counts = self._merged(ids, grads, counts)
        if clip is not None and clip.kind != "value" and norm is None:
            norm = square_norm([grads]) ** 0.5
        grads = clipped(grads, clip, norm)
        apply = self._updating(rate) if scale is None else self._adding(scale)
        with self._lock:
            self._change(ids, grads, counts, apply)

    def add(self, ids: Tensor, deltas: Tensor, *, counts: Tensor | None = None) -> None:
        """Add to rows without the optimizer (geo mode); deltas of equal ids are added."""
        if self._counts_nothing:
            self._add_in_order(ids, deltas, counts, 1.0)
            return
        ids, deltas, counts = self._merged(ids, deltas, counts)
        with self._lock:
            self._change(ids, deltas, counts, self._adding(1.0))

    @property
    def _counts_nothing(self) -> bool:
        """Whether the number of occurrences of an id is irrelevant."""
        return self._admission is None and self._usage is None

    def _add_in_order(
        self, ids: Tensor, values: Tensor, counts: Tensor | None, scale: float
    ) -> None:
        """Add scaled values to rows; equal ids need not be merged."""
        ids = self._checked(ids, values, counts)[0]
        with self._lock:
            self._adding(scale)(self._rows_for(ids), values.contiguous())

    def _adding(self, scale: float) -> Apply:
        def apply(rows: Tensor, values: Tensor) -> None:
            self._records.add(rows, "Param", values, scale)

        return apply

    def _updating(self, rate: float) -> Apply:
        def apply(rows: Tensor, grads: Tensor) -> None:
            records, optimizer = self._records, self._optimizer
            if optimizer.update_in_place(records.store, rows.numpy(), grads.numpy(), rate):
                return
            columns = records.gather(rows, list(records.columns))
            param = columns.pop("Param")
            optimizer.update(param, grads, columns, rate)
            for name, column in {**columns, "Param": param}.items():
                records.write(rows, name, column)

        return apply

    def square_norm(self, ids: Tensor, grads: Tensor) -> float:
        """Return the sum of squares of a gradient, after adding equal ids."""
        return square_norm([self._merged(ids, grads, None)[1]])

    def _merged(
        self, ids: Tensor, values: Tensor, counts: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        ids, given = self._checked(ids, values, counts)
        if self._was_pulled_without_repeats(ids):
            once = ids.new_ones(1).expand(len(ids))
            return ids, values.contiguous(), once if given is None else given
        found, sums, times = merge_rows(ids, values)
        if given is not None:
            times = given if len(found) == len(ids) else merge_rows(ids, given)[1]
        return found, sums.contiguous(), times

    def _was_pulled_without_repeats(self, ids: Tensor) -> bool:
        """Return whether the rows of these ids are known, each once.

        Row numbers are compared by a bit per row, which is faster than a hash table of ids.
        """
        with self._lock:
            rows = self._recent.find(ids)
            return rows is not None and self._records.store.differ(rows.numpy())

    def _checked(
        self, ids: Tensor, values: Tensor, counts: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return ids and counts in the form that the compiled code accepts; reject invalid ones."""
        ids = check_ids(ids)
        self._check_rows(values, len(ids), "gradients")
        if counts is None:
            return ids, None
        counts = check_ids(counts)
        if len(counts) != len(ids):
            raise ValueError(f"{len(ids)} ids cannot have {len(counts)} counts.")
        if len(counts) and int(counts.min()) < 1:
            raise ValueError("counts must be at least 1.")
        return ids, counts

    def _check_rows(self, values: Tensor, count: int, what: str) -> None:
        if values.dtype is not self.dtype or tuple(values.shape) != (count, self.spec.dim):
            raise ValueError(
                f"table {self.spec.name!r} needs {what} of shape [{count}, {self.spec.dim}] and "
                f"type {self.spec.dtype}, not {list(values.shape)} and {values.dtype}."
            )

    def _change(
        self,
        ids: Tensor,
        values: Tensor,
        counts: Tensor,
        apply: Apply,
    ) -> None:
        """Call `apply` on the rows of distinct ids."""
        if self._admission is None:
            rows = self._rows_for(ids)
        else:
            rows = self._index.lookup(ids)
            known = rows >= 0
            if not bool(known.all()):
                unknown = (~known).nonzero().reshape(-1)
                enter = unknown[self._admission.admit(ids[unknown], counts[unknown])]
                made = self._make_rows(ids[enter])
                if self._usage is not None:
                    self._usage.touch(made, counts[enter], self._clock)
                # These gradients were computed for zeros: a new row starts at its initial value.
                rows, values, counts = rows[known], values[known], counts[known]
        apply(rows, values)
        if self._usage is not None:
            self._usage.touch(rows, counts, self._clock)
            if self._usage.count_push():
                self.evict()
                self._clock = min(self._clock + 1, LATEST)
            self._keep_within_memory()

    def _rows_for(self, ids: Tensor) -> Tensor:
        """Return the rows of ids, creating missing ones."""
        rows = self._recent.find(ids)
        return self._make_rows(ids) if rows is None else rows

    def _make_rows(self, ids: Tensor, *, given: Container[str] = ()) -> Tensor:
        """Return the rows of ids, creating missing ones with their initial values.

        The caller will write the columns that are `given`.
        """
        room = self._index.row_limit + len(ids)  # first of all: memory may be short
        self._records.grow(room)
        if self._usage is not None:
            self._usage.grow(room)
        rows, fresh = self._index.insert(ids)
        for part in fresh.split(_NEW_ROWS_PER_PIECE) if len(fresh) else ():
            new = rows[part]
            if "Param" not in given:
                self._records.write(new, "Param", self._first_rows(ids[part]))
            for name, column in self._optimizer.first_state(len(new), skip=given).items():
                self._records.write(new, name, column)
            if self._usage is not None:
                self._usage.set(new, torch.zeros(len(new)), torch.full_like(new, self._clock))
        return rows

    def _remove(self, ids: Tensor) -> int:
        self._recent.forget()
        return self._index.remove(ids)

    # -- eviction ---------------------------------------------------------------------------------
    def evict(self, *, clock: int | None = None) -> int:
        """Decay scores, evict expired rows, and return their number."""
        with self._lock:
            if clock is not None:
                self.clock = clock
            if self._usage is None:
                return 0
            ids, rows = self._index.items()
            gone = []
            # In pieces: a table may be larger than memory.
            for some, where in zip(
                ids.split(_ROWS_PER_PIECE), rows.split(_ROWS_PER_PIECE), strict=True
            ):
                self._usage.fade(where)
                gone.append(some[self._usage.expired(where, self._clock)])
            return self._remove(torch.cat(gone))

    def _keep_within_memory(self) -> None:
        limit = self.spec.eviction.max_bytes if self.spec.eviction is not None else None
        if limit is None or self._usage is None:
            return
        most = limit // (self._records.size + Usage.bytes_per_row + _INDEX_BYTES)
        if len(self) > most:
            ids, rows = self._index.items()
            number = len(self) - (most - most // 10)
            self._remove(ids[self._usage.least_used(ids, rows, number)])

    # -- all rows ---------------------------------------------------------------------------------
    def rows(self, *, names: tuple[str, ...] = ("Param",)) -> Iterator[tuple[Tensor, Columns]]:
        """Yield the current rows, sorted by id, in pieces: ids, and named columns."""
        with self._lock:
            ids = self._index.items()[0].sort().values
        for part in ids.split(_ROWS_PER_PIECE):
            with self._lock:
                rows = self._index.lookup(part)
                known = rows >= 0  # others have been evicted meanwhile
                piece = part[known], self._records.gather(rows[known], list(names))
            yield piece

    @property
    def columns(self) -> dict[str, int]:
        """The columns of a row: "Param" and the optimizer's state, with their widths."""
        return dict(self._records.columns)

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of everything that pushes change, as named tensors."""
        with self._lock:
            ids, rows = self._index.items()
            state = {"ids": ids, **self._records.copy(rows, _ROWS_PER_PIECE)}
            state["clock"] = torch.tensor([self._clock])
            for name, value in self._optimizer.table_state.items():
                state[name] = value.clone()
            if self._usage is not None:
                state["score"], state["seen"] = self._usage.get(rows)
                state.update(self._usage.state_dict())
            if self._admission is not None:
                state.update(self._admission.state_dict())
            return state

    def check_state_dict(self, state: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        """Raise ValueError if this table cannot load a state; return its ids and time."""
        of_table = self._optimizer.table_state
        return check_state(state, self.spec.name, self.columns, of_table, self.dtype)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the table that `state_dict` returned; an invalid state changes nothing.

        Missing state is reset: a saved parameter can be used with any optimizer.
        """
        ids, clock = self.check_state_dict(state)
        with self._lock:
            self._clear()
            self._clock = clock
            given = [name for name in self._records.columns if name in state]
            for start in range(0, len(ids), _ROWS_PER_PIECE):
                here = slice(start, start + _ROWS_PER_PIECE)
                rows = self._make_rows(ids[here], given=given)
                for name in given:
                    self._records.write(rows, name, state[name][here])
                if self._usage is not None and "score" in state:
                    self._usage.set(rows, state["score"][here], state["seen"][here])
            for name, value in self._optimizer.table_state.items():
                if name in state:
                    value.copy_(state[name])
            if self._usage is not None:
                self._usage.load_state_dict(state)
            if self._admission is not None:
                self._admission.load_state_dict(state)
