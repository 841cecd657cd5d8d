"""What servers hand over to those of another layout, and how these divide it among themselves.

Every server writes its whole state into a folder of its own. Each of the new ones reads all of them
and takes its share: blocks of dense tables move as they are, dealt out again; rows go where their
ids belong. Nothing is computed, so training continues with the same bits.
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
from fleetx.ps.tables.table_files import rows_for
from fleetx.ps.tables.table_spec import DenseTableSpec, TableSpec, spec_from_dict
from fleetx.ps.wire.partition import servers_of_ids, spread
from fleetx.runtime.layout_folder import is_whole, mark_ready

_POLL = 0.02
_PART = "server-*"

State = dict[str, Tensor]
Part = tuple[State, dict[str, Any]]


def hand_over(state: ServerState, folder: Path, server: int) -> None:
    """Write the state of a server whose workers have stopped."""
    manifest.save_state(folder / f"server-{server}", *state.capture())


def wait_until_whole(folder: Path, server: int) -> None:
    """Say that a server has started, and wait until those before it have handed over."""
    mark_ready(folder, server)
    pause = threading.Event()
    while not is_whole(folder):
        pause.wait(_POLL)


def take_over(folder: Path, server: int, servers: int) -> Part:
    """Return what a server has of the handed over states, for `ServerState.restore`."""
    paths = sorted(folder.glob(_PART), key=lambda path: int(path.name.split("-")[1]))
    if not paths:
        raise FormatError(str(folder), "holds no state of servers.")
    parts = [manifest.load_state(path) for path in paths]
    versions = {meta["version"] for _, meta in parts}
    if len(versions) > 1:
        raise FormatError(str(folder), f"holds states after different steps: {sorted(versions)}.")
    names = [spec["name"] for spec in parts[0][1]["tables"]]
    tensors: State = {}
    specs = []
    for number, name in enumerate(names):
        spec, own = _share(name, parts, server, servers)
        specs.append(spec.to_dict())
        tensors |= {f"table.{number}.{key}": value for key, value in own.items()}
    tensors |= _changes(names, parts, server, servers)
    return tensors, _meta(names, specs, parts)


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
        # Workers meet at the first server.
        **{key: first[key] for key in ("barriers_passed", "arrived", "notes")},
    }
