"""Checkpoints of PyTorch training: numbered folders with model, optimizer and whatever else has a
state.

A checkpoint is written into a temporary folder of a unique name and published by one rename, with
the lock of the folder held; the newest ones are kept. Usually worker 0's state is everybody's;
where workers differ (LocalSGD between two averages, what DGC holds back, random states) each writes
its own part into the same checkpoint. `load` takes the newest checkpoint that is whole, and says
which it left out and why.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetx.checkpoint.atomic import sync_folder
from fleetx.checkpoint.errors import FormatError
from fleetx.checkpoint.folder_lock import locked
from fleetx.fleet.saving.checkpoint_files import (
    has_part,
    read_manifest,
    read_part,
    write_manifest,
    write_part,
)
from fleetx.fleet.saving.resized_checkpoint import combine

logger = logging.getLogger("fleetx.fleet")

_FOLDER = re.compile(r"checkpoint\.(\d+)")
_TEMPORARY = re.compile(r"checkpoint\..*\.tmp")


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


_ALONE = Others(0, 1, lambda number: [number])


def numbered(path: Path) -> dict[int, Path]:
    """Return the checkpoints in a folder, whole or not, by number, oldest first."""
    found = {}
    if path.is_dir():
        for entry in path.iterdir():
            match = _FOLDER.fullmatch(entry.name)
            if match and entry.is_dir():
                found[int(match.group(1))] = entry
    return dict(sorted(found.items()))


def save(
    path: str | Path,
    states: dict[str, Any],
    *,
    keep: int = 3,
    others: Others | None = None,
    strategy: Sequence[str] = (),
) -> Path:
    """Write a new checkpoint and drop all but the newest `keep`; return its folder.

    With `others` all workers must call it together, and each one's states are kept.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, not {keep}.")
    root, others = Path(path), others or _ALONE
    with contextlib.ExitStack() as stack:
        number = 0
        if others.rank == 0:
            root.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(root))
            number = max(numbered(root), default=-1) + 1
        number = others.first(number)
        token = others.first(secrets.randbits(48))
        temporary = root / f"checkpoint.{number}.{token:012x}.tmp"
        if others.rank == 0:
            _remove_unfinished(root)
            temporary.mkdir()
            stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        others.gather(0)  # worker 0 has made the folder
        problem = _write_part(temporary, others.rank, states)
        _require_parts(root, temporary, others, problem)
        if others.rank == 0:
            write_manifest(temporary, step=number, workers=others.count, strategy=sorted(strategy))
            _publish(temporary, root / f"checkpoint.{number}", keep)
        others.gather(0)  # published: a worker that returns can load it
    return root / f"checkpoint.{number}"


def _write_part(temporary: Path, rank: int, states: dict[str, Any]) -> Exception | None:
    """Write this worker's part if the folder can be reached; return what prevented it."""
    if temporary.is_dir():
        try:
            write_part(temporary, rank, states)
        except (OSError, TypeError, ValueError) as error:
            return error
    return None


def _require_parts(root: Path, temporary: Path, others: Others, problem: Exception | None) -> None:
    """Raise on all workers if one could not write its part where worker 0 sees it."""
    written = others.gather(int(has_part(temporary, others.rank)))
    if problem is not None:
        raise problem
    missing = [rank for rank, done in enumerate(written) if not done]
    seen = others.rank != 0 or all(has_part(temporary, rank) for rank in range(others.count))
    if missing or not others.first(int(seen)):
        raise RuntimeError(
            f"every worker writes a state of its own, but worker(s) {missing or 'above 0'} could "
            f"not do so in worker 0's folder {root}: see their messages, and save to a file system "
            "that all workers share."
        )


def _remove_unfinished(root: Path) -> None:
    """Remove what saves that were killed have left; no other save runs while the lock is held."""
    for entry in root.iterdir():
        if _TEMPORARY.fullmatch(entry.name):
            shutil.rmtree(entry, ignore_errors=True)


def _publish(temporary: Path, final: Path, keep: int) -> None:
    sync_folder(temporary)
    os.rename(temporary, final)
    sync_folder(final.parent)
    for old in list(numbered(final.parent).values())[:-keep]:
        # A reader never sees a checkpoint that is partly removed.
        shutil.rmtree(old.rename(old.with_name(f"{old.name}.{secrets.token_hex(6)}.tmp")))


def load(path: str | Path, others: Others | None = None) -> dict[str, Any] | None:
    """Return the states of the newest whole checkpoint, verified, or None if there is none.

    With `others` all workers must call it together: they must see the same checkpoints, and each
    gets its own states if they were kept; with another number of workers than kept them, the states
    of all combined (`fleetx.fleet.saving.resized_checkpoint`). If checkpoints are there and none is
    whole, FormatError names all of them.
    """
    others = others or _ALONE
    found = numbered(Path(path))
    _require_same_newest(path, max(found, default=-1), others)
    left_out: list[str] = []
    for number in sorted(found, reverse=True):
        states, problem = _try(found[number], others)
        # All workers take the same one: it must be whole for each of them.
        whole = others.gather(int(problem is None))
        if all(whole):
            if left_out and others.rank == 0:
                logger.warning("Loading %s; left out: %s", found[number], " ".join(left_out))
            return states
        unreadable = f"worker(s) {[r for r, ok in enumerate(whole) if not ok]} cannot read it."
        left_out.append(problem or f"{found[number]}: {unreadable}")
    if left_out:
        raise FormatError(str(path), f"has no whole checkpoint: {' '.join(left_out)}")
    return None


def _require_same_newest(path: str | Path, newest: int, others: Others) -> None:
    seen = others.gather(newest)
    if len(set(seen)) > 1:
        listed = ", ".join(f"{n if n >= 0 else 'none'} (worker {r})" for r, n in enumerate(seen))
        raise RuntimeError(
            f"workers see different newest checkpoints in {path}: {listed}; use a folder that "
            "all workers share."
        )


def _try(folder: Path, others: Others) -> tuple[dict[str, Any] | None, str | None]:
    """Return the states that a checkpoint has for this worker, or why it is not whole."""
    try:
        return _states_for(folder, read_manifest(folder), others), None
    except (FormatError, OSError, ValueError, KeyError, TypeError) as error:
        return None, str(error)


def _states_for(folder: Path, manifest: dict[str, Any], others: Others) -> dict[str, Any]:
    kept = manifest["workers"]
    if kept == 1:
        return read_part(folder, manifest, 0)
    if kept == others.count:
        return read_part(folder, manifest, others.rank)
    combined = combine([read_part(folder, manifest, rank) for rank in range(kept)], others.rank)
    if others.rank == 0:
        logger.warning(
            "%s was written by %d workers and is loaded by %d: %s.",
            folder,
            kept,
            others.count,
            combined.summary(),
        )
    return combined.states
