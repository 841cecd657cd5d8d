"""The tables of a served `.pt2` model, bound to its look-ups: mapped files, or rows on servers."""

from __future__ import annotations

import itertools
import weakref
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fleetx.checkpoint.atomic import inside
from fleetx.checkpoint.file_errors import FormatError
from fleetx.kernels.index import integer_ids
from fleetx.ps.client import table_lookup
from fleetx.ps.client.frozen_embedding import FrozenEmbedding
from fleetx.ps.client.request import RefusedError
from fleetx.ps.client.row_cache import Fetch, RowCache
from fleetx.ps.client.table_lookup import Lookup
from fleetx.ps.tables.table_files import SavedTable
from fleetx.serving.table_options import LIVE_CACHE, TableOptions

_numbers = itertools.count(1)


def bind(path: Path, program: Any, folder: str, options: TableOptions) -> list[Path]:
    """Find the tables of an exported program, and bind its look-ups to them.

    Each model registers its own names, so that an old and a new version can be loaded at once;
    they are unregistered with the program. Return the files that identify the tables: their indexes
    and manifests, with the checksums of the rows, which have been verified.
    """
    calls = [n for n in program.graph.nodes if n.target is torch.ops.fleetx.table_rows.default]
    bound: dict[str, Path | None] = {}
    prefix = f"{next(_numbers)}/"
    for node in calls:
        ids, name, dim = node.args
        if name not in bound:
            where = inside(path.parent / folder, name)
            bound[name] = where if where.is_dir() else None
            lookup = _mapped(path, where, dim, options) if bound[name] else None
            table_lookup.provide(prefix + name, lookup or _live(path, name, dim, options))
            weakref.finalize(program, table_lookup.withdraw, prefix + name)
        node.args = (ids, prefix + name, dim)
    if options.reader is not None and all(bound.values()):
        raise FormatError(
            str(path),
            "has the rows of all its tables beside it, so that none are read from --servers: omit "
            "it, or export the model by save_recommender(…, tables=None).",
        )
    folders = [where for where in bound.values() if where is not None]
    return [each for where in folders for each in sorted(where.rglob("*.json"))]


def _mapped(path: Path, where: Path, dim: int, options: TableOptions) -> Lookup:
    found = FrozenEmbedding(where)
    if found.dim != dim or SavedTable(where).name != where.name:
        raise FormatError(
            str(where), f"has rows of {found.dim} numbers, but {path.name} expects {dim}."
        )
    if not options.cache_bytes:
        return found
    cache = RowCache(found, dim, options.cache_bytes, dtype=found.default.dtype)
    return _of_any_shape(cache, where.name, dim)


def _live(path: Path, name: str, dim: int, options: TableOptions) -> Lookup:
    reader = options.reader
    if reader is None:
        raise FormatError(
            str(path),
            f"looks up rows of the table {name!r}, which are not beside it: pass the servers that "
            "have them to fleetx serve --servers, or export the model with the tables of a save.",
        )
    try:
        first = reader.read(name, torch.zeros(1, dtype=torch.int64), dim)
    except RefusedError as error:
        raise FormatError(str(path), f"cannot be served with these servers: {error}") from error
    size = LIVE_CACHE if options.cache_bytes is None else options.cache_bytes

    def fetch(ids: Tensor) -> Tensor:
        return reader.read(name, ids, dim)

    if not size or not options.max_age:
        return _of_any_shape(fetch, name, dim)
    cache = RowCache(fetch, dim, size, dtype=first.dtype, max_age=options.max_age)
    return _of_any_shape(cache, name, dim)


def _of_any_shape(rows_of: Fetch, name: str, dim: int) -> Lookup:
    def look_up(ids: Tensor) -> Tensor:
        return rows_of(integer_ids(ids, name)).reshape(*ids.shape, dim)

    return look_up
