"""Saved tables: a folder per table, a part per server, and an index of the parts of a save.

Every server writes its part under a name that contains the token of this save; when all exist,
`finish_save` checks them and writes `table.json`, which lists them, and only then removes the parts
of the previous save. So a table on disk is always one complete save, even if several workers save
to one folder at the same time. Any number of servers can load it: each reads the ids and slices
that belong to it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fleetx.checkpoint import FormatError
from fleetx.checkpoint.atomic import inside, write_bytes
from fleetx.checkpoint.manifest import load_state, save_state
from fleetx.checkpoint.sealed_json import read_json, seal
from fleetx.checkpoint.state_copy import copy_state, read_meta
from fleetx.ps.tables.spec_checks import SpecError
from fleetx.ps.tables.table_spec import (
    BlockSpec,
    DenseTableSpec,
    SparseTableSpec,
    TableSpec,
    spec_from_dict,
)
from fleetx.ps.wire.partition import servers_of_ids

SERVERS = "__servers__"
"""The folder of a save that holds its tables."""
PAGE = "table.json"
_FORMAT = "fleetx-table"
_VERSION = 2
_PARTS = "part-*-of-*"
_LEFT_OVER = 600.0
"""A part that no index lists is left over from a failed save, after this many seconds."""
# State of a sparse table with one element per row, although it is one-dimensional.
_PER_ROW = ("ids", "score", "seen")
_WAITING = ("waiting_ids", "waiting_counts")

State = dict[str, Tensor]
PathLike = str | os.PathLike[str]


# -- saving ---------------------------------------------------------------------------------------
def save_part(
    folder: PathLike,
    spec: TableSpec,
    state: Mapping[str, Tensor],
    *,
    server: int,
    servers: int,
    token: str,
) -> None:
    """Write one server's part of a table; it takes effect when `finish_save` is called.

    `token` is the same for all servers and new for every save.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.]+", token):
        raise ValueError(f"the token of a save must be letters and digits, not {token!r}.")
    if not 0 <= server < servers:
        raise ValueError(f"there is no server {server} among {servers}.")
    where = inside(folder, spec.name) / _part_name(server, servers, token)
    save_state(where, state, {"spec": spec.to_dict(), "token": token})


def finish_save(folder: PathLike, name: str, *, servers: int, token: str) -> None:
    """Make the parts of this save the current table, once every server has written its part."""
    where = inside(folder, name)
    parts = [_part_name(server, servers, token) for server in range(servers)]
    for part in parts:
        if not (where / part / "manifest.json").is_file():
            raise FileNotFoundError(
                f"{where / part} is missing: the save {token!r} of table {name!r} is not complete."
            )
    before = []
    with contextlib.suppress(FileNotFoundError, FormatError):  # the first save, or a damaged one
        before = _read_page(where / PAGE)["parts"]
    page = {"format": _FORMAT, "version": _VERSION, "name": name, "token": token, "parts": parts}
    write_bytes(where / PAGE, seal(page))
    for old in where.glob(_PARTS):
        if old.name not in parts and (old.name in before or _is_left_over(old)):
            with contextlib.suppress(FileNotFoundError):  # another worker removes it as well
                shutil.rmtree(old)


def _is_left_over(part: Path) -> bool:
    """Return whether a part is left over, not part of a save that another worker will finish."""
    with contextlib.suppress(FileNotFoundError):
        return time.time() - part.stat().st_mtime > _LEFT_OVER
    return False


def table_folder(folder: PathLike) -> Path:
    """Return the folder of a saved table; the path may also be that of the save."""
    plain = Path(folder)
    in_save = plain.parent / SERVERS / plain.name
    is_in_save = not (plain / PAGE).is_file() and (in_save / PAGE).is_file()
    return in_save if is_in_save else plain


def _part_name(server: int, servers: int, token: str) -> str:
    return f"part-{server}-of-{servers}-{token}"


# -- loading --------------------------------------------------------------------------------------
class SavedTable:
    """A table on disk."""

    def __init__(self, folder: PathLike) -> None:
        self.folder = Path(folder)
        page = _read_page(self.folder / PAGE)
        self.name: str = page["name"]
        self.parts: list[str] = page["parts"]
        self._token: str = page["token"]

    def part(self, number: int) -> tuple[TableSpec, State]:
        """Read and verify one server's part; return its specification and state."""
        where = inside(self.folder, self.parts[number])
        state, meta = load_state(where)
        return self._spec(where, meta), state

    def _spec(self, where: Path, meta: Mapping[str, Any]) -> TableSpec:
        if meta.get("token") != self._token:
            raise FormatError(str(where), f"belongs to another save than {PAGE} lists.")
        try:
            return spec_from_dict(meta.get("spec", {}))
        except SpecError as error:
            raise FormatError(str(where), f"has no valid specification: {error}") from error

    def all_parts(self) -> Iterator[tuple[TableSpec, State]]:
        """Read all parts, one after the other."""
        for number in range(len(self.parts)):
            yield self.part(number)

    def copy_rows(self, folder: PathLike) -> None:
        """Save ids and rows of all parts in another folder, without the optimizer's state.

        They keep their checksums, by which loading verifies them.
        """
        token = secrets.token_hex(8)
        for number, part in enumerate(self.parts):
            where = inside(self.folder, part)
            meta = read_meta(where)
            spec = self._spec(where, meta)
            if not isinstance(spec, SparseTableSpec):
                raise FormatError(str(self.folder), "does not hold the rows of an embedding.")
            own = _part_name(number, len(self.parts), token)
            target = inside(folder, self.name) / own
            copy_state(where, target, ("ids", "Param"), {"spec": spec.to_dict(), "token": token})
        finish_save(folder, self.name, servers=len(self.parts), token=token)

    def state_for(self, spec: TableSpec, *, server: int = 0, servers: int = 1) -> State:
        """Return the state of a table on one of `servers` servers, for its `load_state_dict`."""
        if isinstance(spec, DenseTableSpec):
            return self._dense_state(spec)
        return self._sparse_state(server, servers)

    def _sparse_state(self, server: int, servers: int) -> State:
        if len(self.parts) == servers:  # ids are assigned by a fixed rule, so the part is the same
            return self._sparse_part(server)
        return rows_for(map(self._sparse_part, range(len(self.parts))), server, servers)

    def _sparse_part(self, number: int) -> State:
        spec, state = self.part(number)
        if not isinstance(spec, SparseTableSpec) or "ids" not in state:
            raise FormatError(str(self.folder), "does not hold a sparse table.")
        return state

    def _dense_state(self, spec: DenseTableSpec) -> State:
        saved: dict[str, list[tuple[BlockSpec, State]]] = {}
        for found, state in self.all_parts():
            if not isinstance(found, DenseTableSpec):
                raise FormatError(str(self.folder), "does not hold a dense table.")
            for block in found.blocks:
                start = f"{block.name}/"
                own = {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}
                saved.setdefault(block.parameter, []).append((block, own))
        result = {}
        for block in spec.blocks:
            for slot, value in self._cut(block, saved.get(block.parameter, [])).items():
                result[f"{block.name}/{slot}"] = value
        return result

    def _cut(self, block: BlockSpec, saved: Sequence[tuple[BlockSpec, State]]) -> State:
        """Assemble a block from the saved slices."""
        if len(saved) == 1 and saved[0][0].shape == block.shape:
            return saved[0][1]
        result: State = {}
        covered = 0
        for source, state in saved:
            low = max(block.start, source.start)
            high = min(block.start + block.size, source.start + source.size)
            covered += max(0, high - low)
            for slot, value in state.items():
                if value.shape != source.shape:  # a scalar for the whole parameter
                    result.setdefault(slot, value)
                elif low < high:
                    whole = result.setdefault(slot, value.new_empty(block.shape))
                    part = value.reshape(-1)[low - source.start : high - source.start]
                    whole.view(-1)[low - block.start : high - block.start] = part
        if covered != block.size or "Param" not in result:
            raise FormatError(
                str(self.folder),
                f"holds {covered} of the {block.size} elements of {block.name!r}.",
            )
        return result


def rows_for(parts: Iterable[State], server: int, servers: int) -> State:
    """Return the state of a sparse table on one of `servers` servers, from those on others."""
    pieces, clocks = [], []
    for state in parts:
        clocks.append(state.get("clock", torch.zeros(1, dtype=torch.int64)))
        keep = servers_of_ids(state["ids"], servers) == server
        piece = {n: v[keep] if _is_per_row(n, v) else v for n, v in state.items()}
        if all(name in state for name in _WAITING):
            wait = servers_of_ids(state["waiting_ids"], servers) == server
            piece.update({name: state[name][wait] for name in _WAITING})
        pieces.append(piece)
    latest = torch.stack(clocks).max(0).values
    for piece, clock in zip(pieces, clocks, strict=True):
        if "seen" in piece:  # a server counts its own pushes: rows keep their age, not their time
            piece["seen"] = piece["seen"] + (latest - clock)
    return {name: _joined(name, [p[name] for p in pieces if name in p]) for name in pieces[0]}


def _is_per_row(name: str, value: Tensor) -> bool:
    return value.dim() == 2 or name in _PER_ROW


def _joined(name: str, values: list[Tensor]) -> Tensor:
    first = values[0]
    if _is_per_row(name, first) or name in _WAITING:
        return torch.cat(values)
    if name in ("clock", "draws", "pushes"):
        return torch.stack(values).max(0).values
    return first  # the same on all servers


def _read_page(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no saved table in {str(path.parent)!r}: it has no {PAGE}. Name the folder "
            "of one table."
        )
    page = read_json(path, _FORMAT, _VERSION, unsealed=1, name="the index of a saved table")
    parts = page.get("parts")
    if (
        not isinstance(parts, list)
        or not parts
        or not all(isinstance(part, str) for part in parts)
        or not isinstance(page.get("name"), str)
    ):
        raise FormatError(str(path), "does not list its parts.")
    return page


def save_table(folder: PathLike, table: Any, *, token: str = "only") -> None:
    """Save the table of a single server."""
    save_part(folder, table.spec, table.state_dict(), server=0, servers=1, token=token)
    finish_save(folder, table.spec.name, servers=1, token=token)


def load_table(folder: PathLike, table: Any, *, server: int = 0, servers: int = 1) -> None:
    """Load a saved table of the same name into the table of one of `servers` servers."""
    while True:
        saved = SavedTable(inside(folder, table.spec.name))
        try:
            state = saved.state_for(table.spec, server=server, servers=servers)
        except (FileNotFoundError, FormatError):
            if SavedTable(saved.folder).parts == saved.parts:
                raise
            continue  # a newer save has just replaced it
        table.load_state_dict(state)
        return
