"""Initial values of a table from a folder: a save of FleetX's servers, or Paddle's files.

A save has the folder `SERVERS` with all tables, from any number of servers. Without it, a dense
parameter is a file of that name, and a sparse table is a file with all rows, or text files in
`<table>_txt`, as Paddle writes them; rows are loaded as they are, whatever the rules of admission
and eviction. A restarted server that replays its log loads them again.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from fleetx.checkpoint.paddle_tensor import read_tensors
from fleetx.ps.client.first_rows import MARKER
from fleetx.ps.tables.dense_table import DenseTable
from fleetx.ps.tables.make_table import Table
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.table_files import SERVERS, State, load_table, rows_for
from fleetx.ps.tables.table_text import read_text


class FirstValues:
    """Loader of the initial values of tables on one of `servers` servers."""

    def __init__(
        self, folder: str | os.PathLike[str] | None, *, server: int = 0, servers: int = 1
    ) -> None:
        self._folder = None if folder is None else Path(folder)
        self._server, self._servers = server, servers
        if self._folder is not None and not self._folder.is_dir():
            raise ValueError(f"There is no directory named '{folder}' to load parameters from.")

    def fill(self, table: Table) -> bool:
        """Load a table's saved values; return False if there are none."""
        if self._folder is None:
            return False
        saved = self._folder / SERVERS
        if saved.is_dir():
            if not (saved / table.spec.name).is_dir() and table.spec.name == MARKER:
                return True
            load_table(saved, table, server=self._server, servers=self._servers)
        elif isinstance(table, DenseTable):
            self._read_blocks(table)
        else:
            self._read_rows(table)
        return True

    def _array(self, name: str) -> torch.Tensor:
        assert self._folder is not None
        path = self._folder / name
        if not path.is_file():
            raise ValueError(f"{self._folder} has no file for the parameter {name!r}.")
        return torch.from_numpy(read_tensors(path, [name])[name].array)

    def _read_blocks(self, table: DenseTable) -> None:
        if table.spec.name == MARKER:
            return
        for block in table.spec.blocks:
            flat = self._array(block.parameter).reshape(-1)
            if block.start + block.size > len(flat):
                raise ValueError(
                    f"{self._folder} has {len(flat)} elements of {block.parameter!r}, too few for "
                    f"{block.name!r}."
                )
            table.assign(block.name, block.of(flat).to(table.dtype))

    def _read_rows(self, table: SparseTable) -> None:
        assert self._folder is not None
        name = table.spec.name
        if (self._folder / f"{name}_txt").is_dir():
            text = read_text(self._folder, name, dtype=table.dtype)
            kept = ("ids", "Param", "score", "waiting_ids", "waiting_counts")
            state: State = {each: text[each] for each in kept}
        else:
            rows = self._array(name).to(table.dtype)
            state = {"ids": torch.arange(len(rows)), "Param": rows, "score": torch.ones(len(rows))}
        # Times of other tables mean nothing here: all rows count as pushed now.
        state["seen"] = torch.zeros_like(state["ids"])
        table.load_state_dict(rows_for([state], self._server, self._servers))
