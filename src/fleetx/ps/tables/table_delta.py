"""Rows that have changed since an earlier save, as a small save of their own.

For continuous training: a service loads the whole table once and then only the changes;
`load_embedding(whole, deltas=[...])` reads them together.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from fleetx.checkpoint import FormatError
from fleetx.ps.tables.table_files import SavedTable, finish_save, save_part, table_folder
from fleetx.ps.tables.table_spec import SparseTableSpec

PathLike = str | os.PathLike[str]


def save_delta(old: PathLike, new: PathLike, target: PathLike) -> int:
    """Write the rows of the saved table `new` that are not in `old` or differ; return their number.

    All three are folders of a table, or `<save>/<table>` of what `fleet.save_persistables` wrote;
    the name of `target` is that of the table. A table that has lost rows (eviction) is rejected:
    save it as a whole.
    """
    old, new = table_folder(old), table_folder(new)
    before, spec = _sorted_rows(old)
    after, found = _sorted_rows(new)
    if (found.name, found.dim) != (spec.name, spec.dim):
        raise FormatError(
            str(new), f"holds {found.name!r} of dim {found.dim}, not {spec.name!r} of {spec.dim}."
        )
    place = Path(target)
    if place.name != spec.name:
        raise ValueError(
            f"save_delta was given the target {str(place)!r}, but the folder of a delta has the "
            f"name of its table: write it to {str(place / spec.name)!r}."
        )
    lost = ~torch.isin(before[0], after[0])
    if bool(lost.any()):
        raise ValueError(
            f"{int(lost.sum())} rows of {spec.name!r} in {old} are not in {new}, and a delta only "
            "adds rows: save the table as a whole."
        )
    changed = _changed(before, after)
    state = {"ids": after[0][changed], "Param": after[1][changed]}
    token = SavedTable(new).parts[0].rpartition("-")[2]
    save_part(place.parent, found, state, server=0, servers=1, token=token)
    finish_save(place.parent, spec.name, servers=1, token=token)
    return len(state["ids"])


def _sorted_rows(folder: PathLike) -> tuple[tuple[Tensor, Tensor], SparseTableSpec]:
    parts = list(SavedTable(folder).all_parts())
    spec = parts[0][0]
    if not isinstance(spec, SparseTableSpec):
        raise FormatError(str(folder), "does not hold the rows of an embedding.")
    ids, order = torch.cat([state["ids"] for _, state in parts]).sort()
    rows = torch.cat([state["Param"] for _, state in parts])
    return (ids, rows[order]), spec


def _changed(before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]) -> Tensor:
    """Return which rows of `after` are new or differ, both with sorted ids."""
    ids, rows = before
    new = ~torch.isin(after[0], ids)
    changed = new.clone()
    changed[~new] = (after[1][~new] != rows).any(1)
    return changed
