"""Handing over the state of servers to those of another layout.

Every old server writes its whole state into its own folder. Each new server reads all of them and
takes its shard: blocks of dense tables are reassigned as they are; rows go to the server of their
ids. Nothing is computed, so training continues with the same bits.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fleetx.checkpoint import FormatError, manifest
from fleetx.ps.server.state import ServerState, tensors_under
from fleetx.ps.tables.spec_checks import SpecError
from fleetx.ps.tables.table_files import rows_for
from fleetx.ps.tables.table_spec import DenseTableSpec, TableSpec, spec_from_dict
from fleetx.ps.wire.partition import servers_of_ids, spread
from fleetx.runtime.layout_folder import handed_over, is_whole, mark_ready

_POLL = 0.02
_FIELDS = {
    **dict.fromkeys(("workers", "version", "barriers_passed"), int),
    **dict.fromkeys(("tables", "finished", "has_values"), list),
    **dict.fromkeys(("arrived", "notes"), dict),
}

State = dict[str, Tensor]
Part = tuple[State, dict[str, Any]]


def hand_over(state: ServerState, folder: Path, server: int) -> None:
    """Write the state of a server whose workers have stopped."""
    manifest.save_state(_part(folder, server), *state.capture())


def _part(folder: Path, server: int) -> Path:
    return folder / f"server-{server}"


def wait_until_whole(folder: Path, server: int) -> None:
    """Report that a server has started, and wait until the old servers have handed over."""
    mark_ready(folder, server)
    pause = threading.Event()
    while not is_whole(folder):
        pause.wait(_POLL)


def take_over(folder: Path, server: int, servers: int) -> Part:
    """Return a server's shard of the handed over states, for `ServerState.restore`."""
    parts = [manifest.load_state(_part(folder, number)) for number in range(handed_over(folder))]
    for number, part in enumerate(parts):
        problem = _problem(*part) or _difference(part[1], parts[0][1])
        if problem:
            raise FormatError(str(_part(folder, number)), f"is no state to take over: {problem}.")
    names = [spec["name"] for spec in parts[0][1]["tables"]]
    tensors: State = {}
    specs = []
    for number, name in enumerate(names):
        spec, own = _share(name, parts, server, servers)
        specs.append(spec.to_dict())
        tensors |= {f"table.{number}.{key}": value for key, value in own.items()}
    tensors |= _changes(names, parts, server, servers)
    return tensors, _meta(names, specs, parts)


def _problem(tensors: State, meta: dict[str, Any]) -> str | None:
    """Return what is wrong with a state that was handed over; None if nothing is."""
    missing = [key for key, kind in _FIELDS.items() if type(meta.get(key)) is not kind]
    if missing:
        return f"{missing[0]!r} is {meta.get(missing[0])!r:.100}"
    workers = meta["workers"]
    try:
        names = [spec_from_dict(spec).name for spec in meta["tables"]]
    except (SpecError, AttributeError) as error:
        return f"a table is described wrongly ({error})"
    if len(set(names)) < len(names):
        return "a table is there twice"
    numbers = (("finished", workers), ("has_values", len(names)))
    for key, end in numbers:
        if not all(type(number) is int and 0 <= number < end for number in meta[key]):
            return f"{key!r} is {meta[key]!r:.100}"
    if min(workers, meta["version"] + 1, meta["barriers_passed"] + 1) < 1:
        return "a count is negative"
    for key in ("arrived", "notes"):
        if not all(_is_below(barrier, 1 << 29) for barrier in meta[key]):
            return f"{key!r} is {meta[key]!r:.100}"
    for key in tensors_under(tensors, "changes."):
        table, _, worker = key.partition(".")
        if not (_is_below(table, len(names)) and _is_below(worker, workers)):
            return f"changes of {key!r:.100} cannot be"
    return None


def _is_below(text: str, end: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10 and int(text) < end


def _difference(meta: dict[str, Any], first: dict[str, Any]) -> str | None:
    """Return why the state of a server cannot belong to the same job as that of the first."""
    for key in ("version", "workers"):
        if meta[key] != first[key]:
            return f"{key!r} is {meta[key]}, and {first[key]} on the first server"
    tables, expected = ({spec["name"] for spec in each["tables"]} for each in (meta, first))
    return None if tables == expected else f"its tables are {sorted(tables)}"


def _number(name: str, meta: dict[str, Any]) -> int:
    return [spec["name"] for spec in meta["tables"]].index(name)


def _share(name: str, parts: Sequence[Part], server: int, servers: int) -> tuple[TableSpec, State]:
    found = []
    for tensors, meta in parts:
        number = _number(name, meta)
        own = tensors_under(tensors, f"table.{number}.")
        found.append((spec_from_dict(meta["tables"][number]), own))
    spec = found[0][0]
    states = [state for _, state in found]
    if not isinstance(spec, DenseTableSpec):
        return spec, rows_for(states, server, servers)
    dense = [each for each, _ in found if isinstance(each, DenseTableSpec)]
    blocks = [block for each in dense for block in each.blocks]
    if len({block.name for block in blocks}) < len(blocks) or len(dense) < len(found):
        raise FormatError(name, "is a table whose blocks two servers have.")
    mine = spread(blocks, servers)[server]
    starts = tuple(f"{block.name}/" for block in mine)
    state = {k: v for each in states for k, v in each.items() if k.startswith(starts)}
    return dataclasses.replace(spec, blocks=tuple(mine)), state


def _changes(names: list[str], parts: Sequence[Part], server: int, servers: int) -> State:
    """Return the changes that geo workers have not fetched, by the numbers of tables here."""
    found: dict[str, list[Tensor]] = {}
    for tensors, meta in parts:
        for key, ids in tensors_under(tensors, "changes.").items():
            table, worker = key.split(".")
            name = meta["tables"][int(table)]["name"]
            mine = ids[servers_of_ids(ids, servers) == server]
            found.setdefault(f"changes.{names.index(name)}.{worker}", []).append(mine)
    return {key: torch.cat(ids) for key, ids in found.items()}


def _meta(names: list[str], specs: list[dict[str, Any]], parts: Sequence[Part]) -> dict[str, Any]:
    metas = [meta for _, meta in parts]
    with_values = {
        meta["tables"][number]["name"] for meta in metas for number in meta["has_values"]
    }
    first = metas[0]
    return {
        "workers": first["workers"],
        "tables": specs,
        # Workers number their requests to a new server from 1.
        "applied": {},
        "version": first["version"],
        "last_squares": 0.0,
        "step": {"rates": {}, "committed": [], "norm": None},
        "finished": sorted({worker for meta in metas for worker in meta["finished"]}),
        "has_values": [i for i, name in enumerate(names) if name in with_values],
        # Barriers are at the first server.
        **{key: first[key] for key in ("barriers_passed", "arrived", "notes")},
    }
