"""Rows of embeddings in checkpoints.

The table of a job without servers is saved with the other states. Those of a job with servers, and
with them all parameters and optimizers there, are saved by the servers into the checkpoint's
folder, where the manifest lists them like every other file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import nn

from fleetx.fleet.servers.job import ServerJob
from fleetx.ps.client.embedding import RowModule
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.table_files import load_table
from fleetx.techniques.served_tables import row_modules

logger = logging.getLogger("fleetx.fleet")

ROWS = "rows@tables"
"""The name of the rows of local tables among the parts of a checkpoint."""


def has_modules(parts: Iterable[Any]) -> bool:
    """Return whether a model is among the parts of a checkpoint."""
    return any(isinstance(part, nn.Module) for part in parts)


def _modules(parts: Iterable[Any]) -> Iterator[RowModule]:
    return (m for part in parts if isinstance(part, nn.Module) for m in row_modules(part))


def local_tables(parts: Iterable[Any]) -> dict[str, SparseTable]:
    """Return the tables in this process that embeddings of the parts have, by name."""
    found = {module.table_name: module.local_table for module in _modules(parts)}
    return {name: table for name, table in found.items() if table is not None}


def load_rows(
    parts: Iterable[Any], rows: dict[str, Any], served: str | None, servers: ServerJob | None
) -> None:
    """Load the rows of a checkpoint: those of local tables, or the folder that servers saved."""
    parts = list(parts)
    wanted = {module.table_name for module in _modules(parts)}
    if servers is not None and has_modules(parts):
        if served is not None:
            servers.load_tables(served)
        elif rows:
            raise ValueError(
                f"the checkpoint has rows of {sorted(rows)} that a job without parameter servers "
                "saved: load it in such a job, and save its tables for servers."
            )
        else:
            _warn(wanted)
        return
    for name, table in local_tables(parts).items():
        if name in rows:
            table.load_state_dict(rows[name])
        elif served is not None and (Path(served) / name).is_dir():
            load_table(served, table)
        else:
            _warn({name})


def _warn(names: set[str]) -> None:
    if names:
        logger.warning(
            "the checkpoint has no rows of %s: those of the job stay as they are.", sorted(names)
        )
