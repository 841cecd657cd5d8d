"""The files of one checkpoint: a folder per worker, and a manifest of all of them.

    checkpoint.<n>/manifest.json           sealed: step, number of workers, strategy, and every file
                                           with its size and checksum
    checkpoint.<n>/worker.<r>/tensors.safetensors, state.json
    checkpoint.<n>/servers/<table>/…       tables of parameter servers, as these save them

Files that the manifest does not list are ignored, and a checkpoint with a missing, truncated or
changed file is not loaded. Nothing is unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fleetx.checkpoint.file_errors import FormatError
from fleetx.checkpoint.file_list import Entry, HashingStream, check_entry, check_sizes, describe
from fleetx.checkpoint.folder import Folder, LocalFolder
from fleetx.checkpoint.manifest import write_safetensors
from fleetx.checkpoint.sealed_json import digest, seal, unseal
from fleetx.checkpoint.tensor_stream import read_tensors
from fleetx.fleet.saving.memory_copy import MemoryCopy
from fleetx.fleet.saving.snapshot import Snapshot
from fleetx.fleet.saving.state_text import restore

MANIFEST = "manifest.json"
TABLES = "servers"
"""The folder with the tables of parameter servers."""
_FORMAT = "fleetx-checkpoint"
_VERSION = 1
_PART = "part.json"
_TENSORS, _STATE = "tensors.safetensors", "state.json"


def write_part(folder: Folder, rank: int, states: Snapshot, memory: MemoryCopy) -> None:
    """Write the states of one worker, and the list of its files for the manifest."""
    own = f"worker.{rank}"
    memory.begin(sum(t.numel() * t.element_size() for t in states.tensors.values()))
    with folder.create(f"{own}/{_TENSORS}") as stream:
        hashing = HashingStream(stream, memory.write)
        write_safetensors(hashing.as_binary(), states.tensors)
    folder.write(f"{own}/{_STATE}", states.text)
    files = {
        f"{own}/{_TENSORS}": hashing.entry,
        f"{own}/{_STATE}": _entry(states.text),
    }
    folder.write(f"{own}/{_PART}", seal({"files": files}))


def has_part(folder: Folder, rank: int) -> bool:
    """Return whether a worker's part is complete, as this machine sees the folder."""
    return folder.size(f"worker.{rank}/{_PART}") is not None


def write_manifest(folder: Folder, *, step: int, workers: int, strategy: list[str]) -> None:
    """Make the parts of all workers one checkpoint."""
    files: dict[str, Entry] = {}
    for rank in range(workers):
        part = f"worker.{rank}/{_PART}"
        files |= unseal(folder.read(part), f"{folder}/{part}")["files"]
        folder.remove(part)
    files |= _table_files(folder)
    check_sizes(folder, files)
    manifest = {
        "format": _FORMAT,
        "version": _VERSION,
        "step": step,
        "workers": workers,
        "strategy": strategy,
        "files": files,
    }
    folder.write(MANIFEST, seal(manifest))


def _table_files(folder: Folder) -> dict[str, Entry]:
    """Return the files that parameter servers have written."""
    if not isinstance(folder, LocalFolder):
        return {}
    paths = sorted(path for path in (folder.path / TABLES).rglob("*") if path.is_file())
    return {str(path.relative_to(folder.path)): describe(path) for path in paths}


def find_tables(folder: Folder, manifest: Mapping[str, Any]) -> str | None:
    """Return where the tables of parameter servers are, verified; None if there are none."""
    listed = {n: entry for n, entry in manifest["files"].items() if n.startswith(f"{TABLES}/")}
    if not listed or not isinstance(folder, LocalFolder):
        return None
    for name, entry in listed.items():
        check_entry(f"{folder}/{name}", describe(folder.path / name), entry)
    return str(folder.path / TABLES)


def read_manifest(folder: Folder) -> dict[str, Any]:
    """Return the verified manifest of a checkpoint whose files are all there."""
    path = f"{folder}/{MANIFEST}"
    if folder.size(MANIFEST) is None:
        why = "is incomplete" if folder.size(_STATE) is None else "was written by FleetX 0.1"
        raise FormatError(str(folder), f"has no {MANIFEST}: it {why}, and cannot be verified.")
    manifest = unseal(folder.read(MANIFEST), path)
    if manifest.get("format") != _FORMAT or manifest.get("version") != _VERSION:
        raise FormatError(
            path,
            f"is a {manifest.get('format')!r} of version {manifest.get('version')}; this FleetX "
            f"reads {_FORMAT!r} of version {_VERSION}.",
        )
    if f"checkpoint.{manifest['step']}" != folder.name:
        raise FormatError(path, f"belongs to checkpoint.{manifest['step']}.")
    check_sizes(folder, manifest["files"])
    return manifest


def read_part(
    folder: Folder, manifest: Mapping[str, Any], rank: int, memory: MemoryCopy
) -> tuple[dict[str, Any], bool]:
    """Return the verified states of one worker, and whether their tensors came from memory."""
    tensors_name, state_name = (f"worker.{rank}/{name}" for name in (_TENSORS, _STATE))
    listed = manifest["files"]
    source = f"{folder}/{tensors_name}"
    in_memory = memory.find(listed[tensors_name])
    if in_memory is not None:
        tensors = in_memory
    else:
        with folder.open(tensors_name) as stream:
            tensors, found = read_tensors(stream, listed[tensors_name]["size"], source)
        check_entry(source, found, listed[tensors_name])
    text = folder.read(state_name)
    check_entry(f"{folder}/{state_name}", _entry(text), listed[state_name])
    states: dict[str, Any] = restore(json.loads(text), tensors)
    return states, in_memory is not None


def _entry(data: bytes) -> Entry:
    return {"size": len(data), "blake2b": digest(data)}
