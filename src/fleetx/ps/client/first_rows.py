"""Initial rows that a worker writes to sparse tables, instead of rows initialised on first use.

Worker 0 writes them before any dense table gets its values, and the others wait for those; a table
of one element serves this purpose in jobs without dense parameters. If worker 0 is restarted while
writing, it writes the same rows again; if it finds saved or trained values, it writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fleetx.ps.client.client import Client
from fleetx.ps.tables.table_spec import BlockSpec, DenseTableSpec, SparseTableSpec
from fleetx.ps.wire.messages import Kind

MARKER = "first_rows_given"
_CHUNK = 1 << 16


def marker_table(servers: int) -> list[DenseTableSpec]:
    """Return the table that has a value once all initial rows are written."""
    block = BlockSpec(name=MARKER, parameter=MARKER, shape=(1,))
    return [
        DenseTableSpec(name=MARKER, blocks=(block,) if server == 0 else ())
        for server in range(servers)
    ]


def give_rows(
    client: Client, tables: Sequence[SparseTableSpec], rows: Mapping[str, Tensor]
) -> None:
    """Write the initial rows 0, 1, … of tables, as worker 0; `rows` may omit tables."""
    client.create(marker_table(client.cut))
    if client.worker != 0 or not rows or MARKER in client.status()[0]["values"]:
        return
    for spec in tables:
        if spec.name in rows:
            client.create(spec)
            _write(client, spec.name, rows[spec.name])


def _write(client: Client, table: str, rows: Tensor) -> None:
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        ids = torch.arange(start, start + len(part))
        differences = part - client.pull_sparse(table, ids)
        client.start_sparse(Kind.ADD, table, ids, differences).wait()
