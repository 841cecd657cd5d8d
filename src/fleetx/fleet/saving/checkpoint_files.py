"""The files of one checkpoint: a folder per worker, and a manifest that makes them one whole.

    checkpoint.<n>/manifest.json           sealed: step, number of workers, strategy, and every file
                                           with its size and checksum
    checkpoint.<n>/worker.<r>/tensors.safetensors, state.json

Nothing in the folder counts that the manifest does not list, and a checkpoint of which any listed
file is missing, cut or changed is not loaded. Nothing is unpickled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fleetx.checkpoint.atomic import write_bytes
from fleetx.checkpoint.errors import FormatError
from fleetx.checkpoint.file_list import Entry, HashingStream, check_contents, check_sizes
from fleetx.checkpoint.manifest import read_safetensors, write_safetensors
from fleetx.checkpoint.sealed_json import digest, seal, unseal
from fleetx.fleet.saving.state_text import flatten, restore

MANIFEST = "manifest.json"
_FORMAT = "fleetx-checkpoint"
_VERSION = 1
_PART = "part.json"
_TENSORS, _STATE = "tensors.safetensors", "state.json"


def write_part(folder: Path, rank: int, states: Mapping[str, Any]) -> None:
    """Write the states of one worker, and the list of its files for the manifest."""
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(flatten(dict(states), "", tensors)).encode()
    own = folder / f"worker.{rank}"
    own.mkdir()
    with open(own / _TENSORS, "xb") as stream:
        hashing = HashingStream(stream)
        write_safetensors(hashing.as_binary(), tensors)
        stream.flush()
        os.fsync(stream.fileno())
    write_bytes(own / _STATE, text)
    files = {
        f"{own.name}/{_TENSORS}": hashing.entry,
        f"{own.name}/{_STATE}": {"size": len(text), "blake2b": digest(text)},
    }
    write_bytes(own / _PART, seal({"files": files}))


def has_part(folder: Path, rank: int) -> bool:
    """Return whether a worker's part is complete, as this machine sees the folder."""
    return (folder / f"worker.{rank}" / _PART).is_file()


def write_manifest(folder: Path, *, step: int, workers: int, strategy: list[str]) -> None:
    """Make the parts of all workers one checkpoint."""
    files: dict[str, Entry] = {}
    for rank in range(workers):
        part = folder / f"worker.{rank}" / _PART
        files |= unseal(part.read_bytes(), part)["files"]
        part.unlink()
    check_sizes(folder, files)
    manifest = {
        "format": _FORMAT,
        "version": _VERSION,
        "step": step,
        "workers": workers,
        "strategy": strategy,
        "files": files,
    }
    write_bytes(folder / MANIFEST, seal(manifest))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the verified manifest of a checkpoint whose files are all there."""
    path = folder / MANIFEST
    if not path.is_file():
        why = "was written by FleetX 0.1" if (folder / _STATE).is_file() else "is incomplete"
        raise FormatError(str(folder), f"has no {MANIFEST}: it {why}, and cannot be verified.")
    manifest = unseal(path.read_bytes(), path)
    if manifest.get("format") != _FORMAT or manifest.get("version") != _VERSION:
        raise FormatError(
            str(path),
            f"is a {manifest.get('format')!r} of version {manifest.get('version')}; this FleetX "
            f"reads {_FORMAT!r} of version {_VERSION}.",
        )
    if f"checkpoint.{manifest['step']}" != folder.name:
        raise FormatError(str(path), f"belongs to checkpoint.{manifest['step']}.")
    check_sizes(folder, manifest["files"])
    return manifest


def read_part(folder: Path, manifest: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """Return the verified states of one worker."""
    names = [f"worker.{rank}/{name}" for name in (_TENSORS, _STATE)]
    check_contents(folder, manifest["files"], names)
    tensors = read_safetensors(folder / names[0])
    states: dict[str, Any] = restore(json.loads((folder / names[1]).read_bytes()), tensors)
    return states
