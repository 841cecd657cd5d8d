"""Checkpoints of PyTorch training: numbered folders with model, optimizer and whatever else has a
state.

A checkpoint is written into a temporary folder and renamed when it is whole; the newest ones are
kept. Usually worker 0's state is everybody's; where workers differ (LocalSGD between two averages,
what DGC holds back) each writes its own part into the same folder. Tensors lie in safetensors files
with checksums, everything else in JSON; nothing is unpickled on loading.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fleetx.checkpoint.atomic import write_bytes
from fleetx.checkpoint.manifest import load_state, save_state
from fleetx.fleet.saving.resized_checkpoint import combine

logger = logging.getLogger("fleetx.fleet")

_FOLDER = re.compile(r"checkpoint\.(\d+)")
_TENSORS, _REST = "tensors", "state.json"


@dataclass(frozen=True)
class Others:
    """The other workers, as far as checkpoints need them."""

    rank: int
    count: int
    gather: Callable[[int], list[int]]
    """Returns the numbers of all workers, by rank."""

    def first(self, number: int) -> int:
        """Return worker 0's number."""
        return self.gather(number)[0]


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


def save(
    path: str | Path, states: dict[str, Any], *, keep: int = 3, others: Others | None = None
) -> Path:
    """Write a new checkpoint and drop all but the newest `keep`; return its folder.

    With `others` all workers must call it together, and each one's states are kept.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, not {keep}.")
    root = Path(path)
    if others is None:
        number = _begin(root)
        _write(root / f"checkpoint.{number}.tmp", states)
        return _finish(root, number, keep)
    first = others.rank == 0
    number = others.first(_begin(root) if first else 0)
    temporary = root / f"checkpoint.{number}.tmp"
    part = temporary if first else temporary / f"worker.{others.rank}"
    if first or temporary.is_dir():
        _write(part, states)
    written = others.gather(int(first or part.is_dir()))
    missing = [rank for rank, done in enumerate(written) if not done]
    if missing or (first and not _has_parts(temporary, others.count)):
        raise RuntimeError(
            f"the strategy gives every worker a state of its own, but worker(s) "
            f"{missing or 'above 0'} do not reach worker 0's folder {root}: save to a file system "
            "that all workers share."
        )
    return _finish(root, number, keep) if first else root / f"checkpoint.{number}"


def _begin(root: Path) -> int:
    """Make the temporary folder of the next checkpoint; return its number."""
    root.mkdir(parents=True, exist_ok=True)
    number = max(numbered(root), default=-1) + 1
    temporary = root / f"checkpoint.{number}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    return number


def _write(folder: Path, states: dict[str, Any]) -> None:
    tensors: dict[str, torch.Tensor] = {}
    rest = _flatten(states, "", tensors)
    folder.mkdir(exist_ok=True)
    save_state(folder / _TENSORS, tensors, {})
    write_bytes(folder / _REST, json.dumps(rest).encode())


def _has_parts(folder: Path, workers: int) -> bool:
    return all((folder / f"worker.{rank}" / _REST).is_file() for rank in range(1, workers))


def _finish(root: Path, number: int, keep: int) -> Path:
    final = (root / f"checkpoint.{number}.tmp").rename(root / f"checkpoint.{number}")
    for old in list(numbered(root).values())[:-keep]:
        shutil.rmtree(old)
    return final


def load(path: str | Path, others: Others | None = None) -> dict[str, Any] | None:
    """Return the states of the newest checkpoint, verified, or None if there is none.

    With `others` all workers must call it together: they must see the same checkpoint, and each
    gets its own states if they were kept; with another number of workers than kept them, the states
    of all combined (`fleetx.fleet.saving.resized_checkpoint`).
    """
    found = numbered(Path(path))
    newest = max(found, default=-1)
    if others is not None:
        seen = others.gather(newest)
        if len(set(seen)) > 1:
            listed = ", ".join(
                f"{n if n >= 0 else 'none'} (worker {r})" for r, n in enumerate(seen)
            )
            raise RuntimeError(
                f"workers see different newest checkpoints in {path}: {listed}; use a folder that "
                "all workers share."
            )
    if newest < 0:
        return None
    folder = found[newest]
    kept = 1 + len(list(folder.glob("worker.*")))
    count, rank = (1, 0) if others is None else (others.count, others.rank)
    if kept == 1:
        return _read(folder, 0)
    if kept == count:
        return _read(folder, rank)
    combined = combine([_read(folder, i) for i in range(kept)], rank)
    if rank == 0:
        logger.warning(
            "%s was written by %d workers and is loaded by %d: %s.",
            folder,
            kept,
            count,
            combined.summary(),
        )
    return combined.states


def _read(folder: Path, rank: int) -> dict[str, Any]:
    """Return the states of one worker in a checkpoint."""
    folder = folder if rank == 0 else folder / f"worker.{rank}"
    tensors, _ = load_state(folder / _TENSORS)
    states: dict[str, Any] = _restore(json.loads((folder / _REST).read_text()), tensors)
    return states
