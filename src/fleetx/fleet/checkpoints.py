"""Checkpoints of PyTorch training: numbered folders with model, optimizer and whatever else has a
state.

A checkpoint is written by rank 0 into a temporary folder and renamed when it is whole; the newest
ones are kept. Tensors lie in safetensors files with checksums, everything else in JSON; nothing is
unpickled on loading.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch

from fleetx.checkpoint.atomic import write_bytes
from fleetx.checkpoint.manifest import load_state, save_state

_FOLDER = re.compile(r"checkpoint\.(\d+)")
_TENSORS, _REST = "tensors", "state.json"


def _flatten(value: Any, path: str, tensors: dict[str, torch.Tensor]) -> Any:
    """Return the value as JSON can hold it; tensors go to `tensors` under their path."""
    if isinstance(value, torch.Tensor):
        tensors[path] = value.detach().cpu().contiguous()
        return {"@tensor": path}
    if isinstance(value, dict):
        return {
            "@dict": [
                [key, _flatten(item, f"{path}/{key}", tensors)] for key, item in value.items()
            ]
        }
    if isinstance(value, list | tuple):
        kind = "@tuple" if isinstance(value, tuple) else "@list"
        return {kind: [_flatten(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"a checkpoint holds tensors, numbers, text and containers of them; {path} is a "
        f"{type(value).__name__}."
    )


def _restore(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    (kind, inside), *_ = value.items()
    if kind == "@tensor":
        return tensors[inside]
    if kind == "@dict":
        return {key: _restore(item, tensors) for key, item in inside}
    restored = [_restore(item, tensors) for item in inside]
    return tuple(restored) if kind == "@tuple" else restored


def numbered(path: Path) -> dict[int, Path]:
    """Return the complete checkpoints in a folder, by number, oldest first."""
    found = {}
    if path.is_dir():
        for entry in path.iterdir():
            match = _FOLDER.fullmatch(entry.name)
            if match and (entry / _REST).is_file():
                found[int(match.group(1))] = entry
    return dict(sorted(found.items()))


def save(path: str | Path, states: dict[str, Any], *, keep: int = 3) -> Path:
    """Write a new checkpoint and drop all but the newest `keep`; return its folder."""
    if keep < 1:
        raise ValueError(f"keep must be at least 1, not {keep}.")
    root = Path(path)
    root.mkdir(parents=True, exist_ok=True)
    number = max(numbered(root), default=-1) + 1
    temporary = root / f"checkpoint.{number}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    tensors: dict[str, torch.Tensor] = {}
    rest = _flatten(states, "", tensors)
    save_state(temporary / _TENSORS, tensors, {})
    write_bytes(temporary / _REST, json.dumps(rest).encode())
    final = temporary.rename(root / f"checkpoint.{number}")
    for old in list(numbered(root).values())[:-keep]:
        shutil.rmtree(old)
    return final


def load(path: str | Path) -> dict[str, Any] | None:
    """Return the states of the newest checkpoint, verified, or None if there is none."""
    found = numbered(Path(path))
    if not found:
        return None
    folder = found[max(found)]
    tensors, _ = load_state(folder / _TENSORS)
    states: dict[str, Any] = _restore(json.loads((folder / _REST).read_text()), tensors)
    return states
