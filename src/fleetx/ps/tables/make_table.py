"""Creation of a table from its specification."""

from __future__ import annotations

from fleetx.ps.tables.dense_table import DenseTable
from fleetx.ps.tables.row_memory import RowMemory
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.table_spec import DenseTableSpec, TableSpec

Table = DenseTable | SparseTable


def create_table(spec: TableSpec, memory: RowMemory | None = None) -> Table:
    """Return an empty sparse table, or a dense one with its initial values.

    `memory` is what rows of sparse tables may take; others are in files.
    """
    return DenseTable(spec) if isinstance(spec, DenseTableSpec) else SparseTable(spec, memory)
