"""Mapping of 64-bit ids to rows, for whole tensors, with a compiled hash table.

Ids are int64 tensors; unsigned ids are reinterpreted as signed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.kernels import native

# The 64 bits of an unsigned id are kept.
_INTEGERS = (
    torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64,
)  # fmt: skip


def check_ids(ids: Tensor) -> Tensor:
    """Return ids as a contiguous int64 vector on the CPU, for the compiled code."""
    if not isinstance(ids, Tensor) or ids.dtype is not torch.int64:
        found = ids.dtype if isinstance(ids, Tensor) else type(ids).__name__
        raise TypeError(f"ids must be an int64 tensor, not {found}.")
    return ids.detach().cpu().reshape(-1).contiguous()


def integer_ids(ids: Tensor, table: str) -> Tensor:
    """Return the ids of a look-up in a table as a flat int64 tensor; reject other types."""
    if not isinstance(ids, Tensor):
        raise TypeError(
            f"the table {table!r} is looked up by a tensor of integers, not by a "
            f"{type(ids).__name__}: pass torch.as_tensor(ids)."
        )
    if ids.dtype not in _INTEGERS:
        raise TypeError(
            f"the table {table!r} is looked up by integers, not by {ids.dtype}, which cannot hold "
            "every id: use integer ids from the start, or convert them with .long()."
        )
    return ids.detach().reshape(-1).long()


def check_range(ids: Tensor, table: str, rows: int) -> None:
    """Reject ids outside a table with this many rows."""
    if not ids.numel():
        return
    low, high = (int(value) for value in ids.aminmax())
    if low < 0 or high >= rows:
        raise IndexError(
            f"id {low if low < 0 else high} is outside the table {table!r}, which has {rows} rows: "
            f"ids go from 0 to {rows - 1}."
        )


class IdIndex:
    """A mapping of ids to row numbers: 0, 1, 2, … in order of appearance, reusing removed ones."""

    def __init__(self) -> None:
        self._index = native.Index()

    def __len__(self) -> int:
        return len(self._index)

    @property
    def row_limit(self) -> int:
        """The upper limit of all row numbers assigned so far."""
        return self._index.rows

    @property
    def nbytes(self) -> int:
        """The memory of the index, in bytes."""
        return self._index.nbytes

    def lookup(self, ids: Tensor) -> Tensor:
        """Return the row of every id, -1 for unknown ones."""
        ids = check_ids(ids)
        rows = torch.empty_like(ids)
        self._index.lookup(ids.numpy(), rows.numpy())
        return rows

    def insert(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Assign a row to every id; return the rows, and the positions of new ids."""
        ids = check_ids(ids)
        rows, fresh = torch.empty_like(ids), torch.empty_like(ids)
        count = self._index.insert(ids.numpy(), rows.numpy(), fresh.numpy())
        return rows, fresh[:count]

    def remove(self, ids: Tensor) -> int:
        """Remove ids; return how many were known."""
        return self._index.remove(check_ids(ids).numpy())

    def items(self) -> tuple[Tensor, Tensor]:
        """Return all ids and their rows, in the order of rows."""
        ids = torch.empty(self.row_limit, dtype=torch.int64)
        live = torch.empty(self.row_limit, dtype=torch.bool)
        self._index.ids_by_row(ids.numpy(), live.numpy())
        rows = live.nonzero().reshape(-1)
        return ids[rows], rows


def unique_ids(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ids, in order of appearance, and the index of each id among them."""
    ids = check_ids(ids)
    found, inverse = torch.empty_like(ids), torch.empty_like(ids)
    count = native.unique(ids.numpy(), found.numpy(), inverse.numpy())
    return found[:count], inverse


def merge_rows(ids: Tensor, grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum the rows of equal ids; return the distinct ids, the sums, and the count of each."""
    found, inverse = unique_ids(ids)
    if len(found) == len(inverse):
        return found, grads, torch.ones_like(inverse)
    counts = torch.bincount(inverse, minlength=len(found))
    return found, sum_rows(grads, inverse, len(found)), counts


def sum_rows(values: Tensor, places: Tensor, count: int) -> Tensor:
    """Return `count` rows, each the sum of the values with its index in `places`."""
    sums = values.new_zeros(count, *values.shape[1:])
    if values.dtype in (torch.float32, torch.float64) and values.numel():
        native.add_rows(check_ids(places).numpy(), values.contiguous().numpy(), sums.numpy())
        return sums
    return sums.index_add_(0, places, values)
