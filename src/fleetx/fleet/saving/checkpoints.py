"""Checkpoints of PyTorch training: numbered folders with model, optimizer and whatever else has a
state.

Usually all workers have worker 0's state; if they differ (LocalSGD between two averages, DGC's
residuals, random states), each writes its own part into the same checkpoint. `load` uses the newest
intact checkpoint, and reports which ones it skipped and why.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetx.checkpoint.file_errors import FormatError
from fleetx.checkpoint.folder import Folder
from fleetx.fleet.saving.checkpoint_files import (
    TABLES,
    find_tables,
    has_part,
    read_manifest,
    read_part,
    write_manifest,
    write_part,
)
from fleetx.fleet.saving.local_store import LocalStore
from fleetx.fleet.saving.memory_copy import MemoryCopy
from fleetx.fleet.saving.remote_store import RemoteStore
from fleetx.fleet.saving.resized_checkpoint import combine
from fleetx.fleet.saving.retention import Retention
from fleetx.fleet.saving.snapshot import Snapshot, take

logger = logging.getLogger("fleetx.fleet")

Store = LocalStore | RemoteStore

SERVED = "tables@servers"
"""The name of the folder with the tables of servers, among the states that `load` returns."""

_DAMAGED = (FormatError, OSError, ValueError, KeyError, TypeError)


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
_NO_MEMORY = MemoryCopy([])


def store_at(path: str | Path) -> Store:
    """Return the checkpoints at a path or at an address such as s3://bucket/folder."""
    scheme, separator, rest = str(path).partition("://")
    if not separator:
        return LocalStore(Path(path))
    if scheme in ("file", "local"):
        return LocalStore(Path(rest))
    return RemoteStore(str(path))


def numbered(path: Path) -> dict[int, Path]:
    """Return the checkpoints in a folder, whole or not, by number, oldest first."""
    return {number: folder.path for number, folder in LocalStore(path).numbered().items()}


def save(
    path: str | Path,
    states: Mapping[str, Any] | Snapshot | Exception,
    *,
    keep: int = 3,
    every: int | None = None,
    others: Others | None = None,
    strategy: Sequence[str] = (),
    memory: MemoryCopy = _NO_MEMORY,
    save_tables: Callable[[str], None] | None = None,
) -> Path | str:
    """Write a new checkpoint, and remove old ones; return its folder.

    With `others` all workers must call it together, and each one's states are kept; an error of one
    is raised on all.

    Args:
        path: the folder of checkpoints, or the address of a remote one.
        states: what to save; or the error why it cannot be saved, to be raised on all workers.
        keep: how many of the newest whole checkpoints stay.
        every: those whose number is a multiple of it stay too.
        others: the other workers, if each writes a part.
        strategy: the names of the techniques, for the manifest.
        memory: where this worker's tensors stay for a restart.
        save_tables: makes parameter servers save their tables into a folder; the first worker's.
    """
    retention = Retention(keep, every)
    store, others = store_at(path), others or _ALONE
    with contextlib.ExitStack() as stack:
        number, problem = -1, None
        if others.rank == 0:
            number, problem = _attempt(lambda: store.begin(stack), -1)
        number = others.first(number)
        folder: Any = store.unfinished(number, others.first(secrets.randbits(48)))
        if others.rank == 0 and problem is None:
            _, problem = _attempt(lambda: _make(store, folder, stack, save_tables), None)
        _require_first(store, others, problem, "begin")
        stack.callback(memory.discard)  # unless it is published
        problem = _write_part(folder, others.rank, states, memory)
        _require_parts(store, folder, others, problem)
        problem = None
        if others.rank == 0:
            names = sorted(strategy)
            _, problem = _attempt(
                lambda: _publish(store, folder, number, others.count, names, retention), None
            )
        # Once published, a worker that returns can load it.
        _require_first(store, others, problem, "publish")
        memory.publish()
    return store.location(number)


def _make(store: Store, folder: Any, stack: contextlib.ExitStack, save_tables: Any) -> None:
    """Create the folder of a checkpoint, with the tables of servers in it."""
    if save_tables is not None and not isinstance(store, LocalStore):
        raise ValueError(
            f"parameter servers cannot save their tables to {store}: name a folder that all "
            "machines share."
        )
    store.make(folder, stack)
    if save_tables is not None:
        save_tables(str(folder.path / TABLES))


def _attempt(action: Callable[[], Any], otherwise: Any) -> tuple[Any, Exception | None]:
    """Return the result of an action, or its error, which the other workers are waiting for."""
    try:
        return action(), None
    except Exception as error:
        return otherwise, error


def _require_first(store: Store, others: Others, problem: Exception | None, action: str) -> None:
    """Raise on all workers if worker 0 has a problem."""
    fine = others.first(int(problem is None))
    if problem is not None:
        raise problem
    if not fine:
        raise RuntimeError(
            f"worker 0 could not {action} the checkpoint in {store}: see its message."
        )


def _write_part(
    folder: Folder,
    rank: int,
    states: Mapping[str, Any] | Snapshot | Exception,
    memory: MemoryCopy,
) -> Exception | None:
    """Write this worker's part if the folder can be reached; return what prevented it."""
    if isinstance(states, Exception):
        return states
    if not folder.can_be_written():
        return None
    try:
        content = states if isinstance(states, Snapshot) else take(states)
        write_part(folder, rank, content, memory)
    except Exception as error:
        return error
    return None


def _require_parts(store: Store, folder: Folder, others: Others, problem: Exception | None) -> None:
    """Raise on all workers if one could not write its part where worker 0 sees it."""
    written = others.gather(int(problem is None and has_part(folder, others.rank)))
    if problem is not None:
        raise problem
    missing = [rank for rank, done in enumerate(written) if not done]
    seen = others.rank != 0 or all(has_part(folder, rank) for rank in range(others.count))
    if missing or not others.first(int(seen)):
        raise RuntimeError(
            f"every worker writes a state of its own, but worker(s) {missing or 'above 0'} could "
            f"not do so in worker 0's folder {store}: see their messages, and save to a file "
            "system that all workers share."
        )


def _publish(
    store: Store,
    folder: Any,
    number: int,
    workers: int,
    strategy: list[str],
    retention: Retention,
) -> None:
    write_manifest(folder, step=number, workers=workers, strategy=strategy)
    store.publish(folder, number)
    found = store.numbered()
    for old in retention.outdated(found, lambda each: _is_whole(found[each])):
        store.remove(old)


def _is_whole(folder: Folder) -> bool:
    """Return whether all files of a checkpoint are there, without reading them."""
    return _attempt(lambda: read_manifest(folder), None)[1] is None


def load(
    path: str | Path, others: Others | None = None, memory: MemoryCopy = _NO_MEMORY
) -> dict[str, Any] | None:
    """Return the states of the newest whole checkpoint, verified, or None if there is none.

    With `others` all workers must call it together: they must see the same checkpoints, and each
    gets its own states if they were kept; with another number of workers than kept them, the states
    of all combined (`fleetx.fleet.saving.resized_checkpoint`). If there are checkpoints but none is
    intact, FormatError lists all of them. Tensors that `memory` has are not read from the folder.
    """
    others = others or _ALONE
    found = store_at(path).numbered()
    _require_same_newest(path, max(found, default=-1), others)
    left_out: list[str] = []
    for number in sorted(found, reverse=True):
        states, problem = _try(found[number], others, memory)
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


def _try(
    folder: Folder, others: Others, memory: MemoryCopy
) -> tuple[dict[str, Any] | None, str | None]:
    """Return the states that a checkpoint has for this worker, or why it is not whole."""
    try:
        return _states_for(folder, read_manifest(folder), others, memory), None
    except _DAMAGED as error:
        return None, str(error)


def _states_for(
    folder: Folder, manifest: dict[str, Any], others: Others, memory: MemoryCopy
) -> dict[str, Any]:
    tables = find_tables(folder, manifest) if others.rank == 0 else None
    states = _own_states(folder, manifest, others, memory)
    if any(name.startswith(f"{TABLES}/") for name in manifest["files"]):
        states[SERVED] = tables or str(folder) + f"/{TABLES}"
    return states


def _own_states(
    folder: Folder, manifest: dict[str, Any], others: Others, memory: MemoryCopy
) -> dict[str, Any]:
    kept = manifest["workers"]
    ranks = [0] if kept == 1 else [others.rank] if kept == others.count else range(kept)
    parts = [read_part(folder, manifest, rank, memory) for rank in ranks]
    remembered = sum(from_memory for _, from_memory in parts)
    logger.info(
        "Loading %s: %d of %d file(s) of tensors from memory of this machine, the rest from %s.",
        folder,
        remembered,
        len(parts),
        folder.KIND,
    )
    if len(parts) == 1:
        return parts[0][0]
    combined = combine([states for states, _ in parts], others.rank)
    if others.rank == 0:
        logger.warning(
            "%s was written by %d workers and is loaded by %d: %s.",
            folder,
            kept,
            others.count,
            combined.summary(),
        )
    return combined.states
