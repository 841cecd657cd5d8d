"""First rows that a worker gives to sparse tables, instead of rows that make themselves.

Worker 0 writes them before any dense table gets its values, and the others wait for those; a table
of one number is there for jobs without dense parameters. A worker 0 that was started again while
it wrote writes the same once more; one that finds values, of a save or of training, writes nothing.
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
    """Return the table that has a value once all first rows are there."""
    block = BlockSpec(name=MARKER, parameter=MARKER, shape=(1,))
    return [
        DenseTableSpec(name=MARKER, blocks=(block,) if server == 0 else ())
        for server in range(servers)
    ]


def give_rows(
    client: Client, tables: Sequence[SparseTableSpec], rows: Mapping[str, Tensor]
) -> None:
    """Write the first rows 0, 1, … of tables, as worker 0; `rows` may be of some tables only."""
    client.create(marker_table(client.servers))
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
