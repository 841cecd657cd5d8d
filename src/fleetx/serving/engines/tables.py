"""The tables beside a served `.pt2` model: mapped into memory, and bound to its look-ups."""

from __future__ import annotations

import itertools
import weakref
from pathlib import Path
from typing import Any

import torch

from fleetx.checkpoint.atomic import inside
from fleetx.checkpoint.file_errors import FormatError
from fleetx.ps.client import table_lookup
from fleetx.ps.client.frozen_embedding import FrozenEmbedding
from fleetx.ps.tables.table_files import SavedTable

_numbers = itertools.count(1)


def bind(path: Path, program: Any, folder: str) -> list[Path]:
    """Load the tables that an exported program looks up in, and bind its calls to them.

    Each model has names of its own, so that an old and a new version can be loaded at once; they
    are withdrawn with the program. Return the files that the tables are made of.
    """
    calls = [n for n in program.graph.nodes if n.target is torch.ops.fleetx.table_rows.default]
    if not calls:
        return []
    tables: dict[str, FrozenEmbedding] = {}
    files: list[Path] = []
    prefix = f"{next(_numbers)}/"
    for node in calls:
        ids, name, dim = node.args
        if name not in tables:
            where = inside(path.parent / folder, name)
            tables[name] = _load(path, where, dim)
            files += sorted(each for each in where.rglob("*") if each.is_file())
            table_lookup.provide(prefix + name, tables[name])
            weakref.finalize(program, table_lookup.withdraw, prefix + name)
        node.args = (ids, prefix + name, dim)
    return files


def _load(path: Path, where: Path, dim: int) -> FrozenEmbedding:
    found = FrozenEmbedding(where)
    if found.dim != dim or SavedTable(where).name != where.name:
        raise FormatError(
            str(where), f"has rows of {found.dim} numbers, but {path.name} expects {dim}."
        )
    return found
