"""Embeddings with the rows of a save, without servers: for inference, evaluation and export.

    embedding = fleetx.load_embedding("saved/user")
    model = fleetx.freeze_embeddings(model, "saved")

The rows stay in the file and are mapped into memory; only the sorted index of ids is built. An id
without a row reads as the table's default row: the mean of its initializer, zeros for most. The
look-up is made of gathers, so that torch.export and ONNX take it with the table.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fleetx.checkpoint.file_errors import FormatError
from fleetx.kernels.index import integer_ids
from fleetx.ps.client.embedding import LocalTable, RowModule, SparseEmbedding
from fleetx.ps.tables.default_row import default_row
from fleetx.ps.tables.table_files import SavedTable, load_table, table_folder
from fleetx.ps.tables.table_spec import SparseTableSpec

PathLike = str | os.PathLike[str]
_SOME = 1 << 16


class _Rows(NamedTuple):
    """The rows of a table, in one or several tensors, and the index of ids."""

    spec: SparseTableSpec
    parts: list[Tensor]
    keys: Tensor  # sorted
    part: Tensor | None  # None if there is one
    place: Tensor | None  # None if rows are in the order of the keys


class FrozenEmbedding(nn.Module):
    """An embedding with the rows of a save, which are not trained.

    Args:
        folder: the folder of the saved table.
        deltas: folders of `save_delta` with rows that have changed since, oldest first.
        padding_idx: an id that reads as zeros.
    """

    keys: Tensor
    part: Tensor | None
    place: Tensor | None
    default: Tensor

    def __init__(
        self,
        folder: PathLike,
        *,
        deltas: Sequence[PathLike] = (),
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        found = _read([table_folder(folder), *map(Path, deltas)])
        self.table_name, self.dim = found.spec.name, found.spec.dim
        self.padding_idx = padding_idx
        self._count = len(found.parts)
        # Not in the state_dict: a trained model's has no rows either.
        self.register_buffer("keys", found.keys, persistent=False)
        for name in ("part", "place"):
            value = getattr(found, name)
            if value is None:  # torch.export takes no buffer without a value
                setattr(self, name, None)
            else:
                self.register_buffer(name, value, persistent=False)
        self.register_buffer("default", default_row(found.spec), persistent=False)
        for number, rows in enumerate(found.parts):
            self.register_buffer(f"rows_{number}", rows, persistent=False)

    def __len__(self) -> int:
        return len(self.keys)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows of ids: ids.shape + (dim,)."""
        is_traced = torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export()
        flat = ids.reshape(-1).long() if is_traced else integer_ids(ids, self.table_name)
        if not len(self.keys):
            return self.default.expand(*ids.shape, self.dim)
        if is_traced:
            at = _search(self.keys, flat)
            rows = self._traced_rows(at, self.keys[at] == flat)
        else:
            at = torch.searchsorted(self.keys, flat).clamp_(max=len(self.keys) - 1)
            rows = self._rows(at, self.keys[at] == flat)
        if self.padding_idx is not None:
            rows = rows * (flat != self.padding_idx).unsqueeze(-1)
        return rows.reshape(*ids.shape, self.dim)

    def _rows(self, at: Tensor, found: Tensor) -> Tensor:
        places = at if self.place is None else self.place[at]
        if self.part is None:
            rows: Tensor = getattr(self, "rows_0")[places]  # noqa: B009 - a Tensor for mypy
            rows[~found] = self.default
            return rows
        out = self.default.expand(len(at), self.dim).clone()
        part = self.part[at]
        for number in range(self._count):
            mine = found & (part == number)
            out[mine] = getattr(self, f"rows_{number}")[places[mine]]
        return out

    def _traced_rows(self, at: Tensor, found: Tensor) -> Tensor:
        """Return rows by operations whose shapes do not depend on the ids."""
        places = at if self.place is None else self.place[at]
        part = None if self.part is None else self.part[at]
        out = self.default.expand(at.shape[0], self.dim)
        for number in range(self._count):
            mine = found if part is None else found & (part == number)
            rows = getattr(self, f"rows_{number}")[torch.where(mine, places, 0)]
            out = torch.where(mine.unsqueeze(-1), rows, out)
        return out

    def extra_repr(self) -> str:
        """Return name, size and dim."""
        return f"{self.table_name!r}, {len(self)} rows, {self.dim}"


def load_embedding(
    folder: PathLike,
    *,
    trainable: bool = False,
    deltas: Sequence[PathLike] = (),
    padding_idx: int | None = None,
) -> FrozenEmbedding | SparseEmbedding:
    """Return an embedding with the rows of a save: `load_embedding("saved/user")`.

    Args:
        folder: the folder of a table, or `<save>/<table>` of what `fleet.save_persistables` wrote.
        trainable: return a SparseEmbedding with these rows and their optimizer's state in the
            memory of this process, updated by the rule of the save at the rate of the model's
            optimizer; otherwise rows are mapped and read-only.
        deltas: folders of `save_delta` with rows that have changed since, oldest first.
        padding_idx: an id that reads as zeros.
    """
    if not trainable:
        return FrozenEmbedding(folder, deltas=deltas, padding_idx=padding_idx)
    if deltas:
        raise ValueError(
            "load_embedding(trainable=True) takes no deltas, which lack the optimizer's state: "
            "load a whole save."
        )
    where = table_folder(folder)
    spec, _ = SavedTable(where).part(0)
    if not isinstance(spec, SparseTableSpec):
        raise FormatError(str(where), "does not hold the rows of an embedding.")
    made = SparseEmbedding(
        spec.name,
        spec.dim,
        initializer=spec.initializer,
        padding_idx=padding_idx,
        dtype=getattr(torch, spec.dtype),
        seed=spec.row_seed,
    )
    made.source = source = LocalTable(spec)
    load_table(where.parent, source.table)
    return made


def freeze_embeddings(model: nn.Module, folder: PathLike) -> nn.Module:
    """Replace the embeddings of a model by those of a save, in place; return the model.

    Embeddings with one name share their rows. A SparseEmbedding itself gives a FrozenEmbedding.
    """
    made: dict[tuple[str, int | None], FrozenEmbedding] = {}

    def frozen(module: RowModule) -> FrozenEmbedding:
        padding = module.padding_idx if module.padding_reads_zero else None
        key = (module.table_name, padding)
        if key not in made:
            where = Path(folder) / module.table_name
            made[key] = FrozenEmbedding(where, padding_idx=padding)
        return made[key]

    if isinstance(model, RowModule):
        return frozen(model)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, RowModule):
                setattr(parent, name, frozen(child))
    return model


def _read(folders: Sequence[Path]) -> _Rows:
    """Map the parts of a save and its deltas; for each id, the last one counts."""
    parts: list[Tensor] = []
    ids: list[Tensor] = []
    spec: SparseTableSpec | None = None
    for folder in folders:
        for found, state in SavedTable(folder).all_parts():
            if not isinstance(found, SparseTableSpec) or "ids" not in state:
                raise FormatError(str(folder), "does not hold the rows of an embedding.")
            spec = spec or found
            if (found.name, found.dim, found.dtype) != (spec.name, spec.dim, spec.dtype):
                raise FormatError(
                    str(folder),
                    f"holds {found.name!r} of {found.dim} {found.dtype} numbers, not "
                    f"{spec.name!r} of {spec.dim} {spec.dtype}.",
                )
            parts.append(state["Param"])
            ids.append(state["ids"])
    assert spec is not None
    if len(ids) == 1 and _is_increasing(ids[0]):
        return _Rows(spec, parts, ids[0], None, None)
    keys, order = torch.cat(ids).sort(stable=True)
    if len(keys):
        last = torch.cat([keys[1:] != keys[:-1], torch.tensor([True])])
        if not bool(last.all()):
            keys, order = keys[last], order[last]
    if len(ids) == 1:
        return _Rows(spec, parts, keys, None, order)
    part = torch.cat([torch.full((len(e),), i, dtype=torch.int16) for i, e in enumerate(ids)])
    place = torch.cat([torch.arange(len(each)) for each in ids])
    return _Rows(spec, parts, keys, part[order], place[order])


def _is_increasing(ids: Tensor) -> bool:
    """Return whether every id is greater than the one before it, looking at some at a time.

    Memory for all of them would be released to the system in one piece, and a server that loads a
    table in the background would not respond meanwhile.
    """
    starts = range(0, max(len(ids) - 1, 0), _SOME)
    pieces = (ids[start : start + _SOME + 1] for start in starts)
    return all(bool((piece[1:] > piece[:-1]).all()) for piece in pieces)


def _search(keys: Tensor, ids: Tensor) -> Tensor:
    """Return the places of the last keys that are not greater, by halving: ONNX has no such op."""
    last = len(keys) - 1
    at = torch.zeros_like(ids)
    for bit in reversed(range(max(1, last.bit_length()))):
        step = at + (1 << bit)
        fits = (step <= last) & (keys[step.clamp(max=last)] <= ids)
        at = torch.where(fits, step, at)
    return at
