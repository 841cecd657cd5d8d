"""The records of a table's rows: a parameter's row and its optimizer state, by named columns.

They are in a store of rows (`kernels/_rows.c`), in memory or, beyond a limit, in a file.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fleetx.kernels import native
from fleetx.ps.tables.row_memory import RowMemory

Columns = dict[str, Tensor]


class RowRecords:
    """Records with columns of these widths."""

    def __init__(
        self, name: str, columns: Mapping[str, int], dtype: torch.dtype, memory: RowMemory | None
    ) -> None:
        self.columns = dict(columns)
        self._name, self._dtype, self._memory, self._taken = name, dtype, memory, 0
        self.size = sum(columns.values()) * dtype.itemsize
        """The bytes of a record."""
        self.store = (
            native.RowStore(self.size)
            if memory is None
            else native.RowStore(self.size, max(memory.block, self.size))
        )
        self._fields: dict[str, tuple[int, int]] = {}
        offset = 0
        for each, width in columns.items():
            self._fields[each] = offset * dtype.itemsize, width * dtype.itemsize
            offset += width

    def grow(self, rows: int) -> None:
        """Make room for this many rows."""
        if self._memory is None:
            self.store.grow(rows)
        else:
            self._taken += self._memory.grow(self.store, rows, self._name)

    def __del__(self) -> None:
        if self._memory is not None:
            self._memory.give_back(self._taken)

    def add(self, rows: Tensor, name: str, values: Tensor, scale: float) -> None:
        """Add scaled values to a column, in order."""
        self.store.add(rows.numpy(), *self._fields[name], values.numpy(), scale)

    def read(self, rows: Tensor, name: str, out: Tensor) -> Tensor:
        """Copy a column of rows to `out`; a row of -1 gives zeros."""
        self.store.gather(rows.numpy(), *self._fields[name], out.numpy())
        return out

    def write(self, rows: Tensor, name: str, values: Tensor) -> None:
        """Set a column of rows."""
        self.store.scatter(rows.numpy(), *self._fields[name], values.contiguous().numpy())

    def gather(self, rows: Tensor, names: list[str]) -> Columns:
        """Return named columns of rows."""
        return {
            name: self.read(
                rows, name, torch.empty(len(rows), self.columns[name], dtype=self._dtype)
            )
            for name in names
        }

    def copy(self, rows: Tensor, piece: int) -> Columns:
        """Return all columns of rows, in files if the records are in one, `piece` at a time."""
        if self._memory is None or not self.store.has_file:
            return self.gather(rows, list(self.columns))
        found = {
            name: self._memory.new_tensor(self._name, (len(rows), width), self._dtype)
            for name, width in self.columns.items()
        }
        for start in range(0, len(rows), piece):
            part = rows[start : start + piece]
            for name, column in found.items():
                self.read(part, name, column[start : start + piece])
        return found
