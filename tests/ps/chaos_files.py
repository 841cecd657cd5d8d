"""Flips, cuts and swaps in the files of real jobs: none may load silently.

    PYTHONPATH=tests python tests/ps/chaos_files.py 2000 [seed]

Trains and saves for real: the state and log of a killed server, its saved tables, the checkpoints
of two workers, and a model in Paddle's formats. Every round copies one of these folders, damages a
file and loads. Loading must raise an error or return what was saved: with older checkpoints next to
the damaged one, one of those; with a log that was cut at its end, the state before a later request.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from processes import servers
from training import dense_specs, make_mode, sparse_spec, train

import warm_start
from fleet import resume_chaos
from fleetx import static
from fleetx.checkpoint import FormatError, manifest
from fleetx.fleet.saving import checkpoints
from fleetx.fleet.saving.checkpoints import Others
from fleetx.ps.client.client import Client
from fleetx.ps.server.journal_reading import LogReader
from fleetx.ps.server.snapshots import Durability, Storage, newest_snapshot
from fleetx.ps.server.state import ServerState
from fleetx.ps.tables.table_files import SavedTable
from fleetx.ps.wire.messages import WireError
from fleetx.static import io, layers

Load = Callable[[Path], Any]
STEPS = 25


def fingerprint(value: Any) -> str:
    """Return a checksum of nested values, tensors and arrays included."""
    found = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, dict):
            for key in sorted(part, key=str):
                found.update(repr(key).encode())
                add(part[key])
        elif isinstance(part, list | tuple):
            found.update(f"{len(part)}[".encode())
            for each in part:
                add(each)
        elif isinstance(part, torch.Tensor | np.ndarray):
            array = np.asarray(part)
            found.update(f"{array.dtype}{array.shape}".encode())
            found.update(array.tobytes())
        else:
            found.update(repr(part).encode())

    add(value)
    return found.hexdigest()


@dataclasses.dataclass
class Material:
    """A folder of a real job, and what loading it may give."""

    folder: Path
    load: Load
    good: set[str]
    """What was saved."""
    after_cut: set[str] = dataclasses.field(default_factory=set)
    """What else may be loaded if the end of a file is missing."""


# -- real files -----------------------------------------------------------------------------------
def _state_of(state: ServerState) -> str:
    tensors, meta = state.capture()
    return fingerprint(({k: v for k, v in tensors.items() if k.startswith("table.")}, meta))


def _recover(folder: Path) -> str:
    state = ServerState(1)
    storage = Storage(Durability(folder=folder))
    try:
        storage.recover(state)
    finally:
        with contextlib.suppress(AssertionError):
            storage.close()
    return _state_of(state)


def _states_on_the_way(folder: Path) -> set[str]:
    """Return the states after the snapshot and after every request of the log after it."""
    state, number, chain = ServerState(1), 0, 0
    snapshot = newest_snapshot(folder)
    if snapshot is not None:
        number = snapshot[0]
        tensors, meta = manifest.load_state(snapshot[1])
        state.restore(tensors, meta)
        chain = int(meta["chain"])
    found = {_state_of(state)}
    for message in LogReader(folder, number, chain):
        with contextlib.suppress(WireError):
            state.apply(message)
        found.add(_state_of(state))
    return found


def server_files(folder: Path) -> tuple[Material, Material]:
    """Train with a server, save its tables, and kill it: its state and the tables."""
    kept = folder / "server"
    durability = Durability(folder=kept, snapshot_bytes=20_000)
    with servers(workers=1, durability=durability) as (endpoints, running):
        with closing(Client(endpoints)) as client:
            mode = make_mode("sync", client, 1)
            train(mode, STEPS)
            client.save(folder / "tables")
        running[0].kill()
    specs = (dense_specs(1)[0], sparse_spec())

    def load_tables(root: Path) -> str:
        return fingerprint([SavedTable(root / spec.name).state_for(spec) for spec in specs])

    ways = _states_on_the_way(_copied(kept, folder / "way"))
    final = _recover(_copied(kept, folder / "final"))
    tables = folder / "tables"
    return (
        Material(kept, _recover, {final}, ways),
        Material(tables, load_tables, {load_tables(tables)}),
    )


def _copied(source: Path, to: Path) -> Path:
    shutil.copytree(source, to, dirs_exist_ok=True)
    return to


def checkpoint_files(folder: Path) -> Material:
    """Train with two workers that save checkpoints."""
    resume_chaos.train(folder / "job", "amp", steps=10, kills=0, seed=1)
    root = folder / "job" / "checkpoints"

    def load(path: Path) -> str:
        return fingerprint(
            [checkpoints.load(path, Others(rank, 2, lambda n: [n] * 2)) for rank in range(2)]
        )

    good = set()
    for number in checkpoints.numbered(root):
        alone = folder / f"alone{number}"
        _copied(root / f"checkpoint.{number}", alone / f"checkpoint.{number}")
        good.add(load(alone))
    # A worker verifies the manifest and its own files, and asks the others about theirs; here each
    # is asked alone, so one may take the newest and the other an older checkpoint.
    return Material(root, load, good | _mixtures(folder, root))


def _mixtures(folder: Path, root: Path) -> set[str]:
    numbers = sorted(checkpoints.numbered(root))
    found = {
        (number, rank): checkpoints.load(
            folder / f"alone{number}", Others(rank, 2, lambda n: [n] * 2)
        )
        for number in numbers
        for rank in range(2)
    }
    return {fingerprint([found[a, 0], found[b, 1]]) for a in numbers for b in numbers}


def paddle_files(folder: Path) -> Material:
    """Save a network in Paddle's formats."""
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 3
    root = folder / "paddle"
    with static.program_guard(main, startup):
        x = static.data("x", [-1, 6], "float32")
        y = layers.fc(layers.fc(x, 20, act="relu"), 3)
        static.optimizer.Adam(0.01).minimize(layers.mean(y))
    executor, scope = static.Executor(), static.Scope()
    rows = np.linspace(-1, 1, 12, dtype="float32").reshape(2, 6)
    with static.scope_guard(scope):
        executor.run(startup)
        executor.run(main, feed={"x": rows})
        io.save_inference_model(root / "m", [x], [y], executor, program=main)
        io.save(main, root / "state")
        io.save_persistables(executor, root / "all", main, "together")

    def load(path: Path) -> str:
        with static.scope_guard(static.Scope()):
            program, feeds, fetches = io.load_inference_model(path / "m", executor)
            outputs = executor.run(program, feed={feeds[0]: rows}, fetch_list=fetches)
        states = []
        for read in (
            lambda: io.load(main, path / "state", executor),
            lambda: io.load_persistables(executor, path / "all", main, "together"),
        ):
            with static.scope_guard(static.Scope()):
                executor.run(startup)
                read()
                states.append([np.array(_value(var.name)) for var in _persistable(main)])
        return fingerprint((outputs, states))

    return Material(root, load, {load(root)})


def _persistable(program: Any) -> list[Any]:
    return sorted((v for v in program.list_vars() if v.persistable), key=lambda v: v.name)


def _value(name: str) -> Any:
    found = static.global_scope().find_var(name)
    return found.get_tensor() if found is not None else np.zeros(0)


# -- damage ---------------------------------------------------------------------------------------
def damage(draw: random.Random, folder: Path) -> tuple[str, str]:
    """Change one file, or exchange two; return what was done and to which."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path = draw.choice(files)
    content = bytearray(path.read_bytes())
    name = str(path.relative_to(folder))
    what = draw.choice(["flip", "flip", "cut", "swap"])
    if what == "flip":
        at = draw.randrange(len(content))
        content[at] ^= 1 << draw.randrange(8)
        path.write_bytes(content)
        return what, f"{name}, byte {at}"
    if what == "cut":
        size = draw.randrange(len(content))
        path.write_bytes(content[:size])
        return what, f"{name}, at byte {size} of {len(content)}"
    other = draw.choice(files)
    theirs = other.read_bytes()
    other.write_bytes(content)
    path.write_bytes(theirs)
    return what, f"{name} and {other.relative_to(folder)}"


def attack(draw: random.Random, material: Material, place: Path) -> str:
    """Damage a copy and load it; return what happened, and raise if it loaded silently."""
    shutil.rmtree(place, ignore_errors=True)
    what, where = damage(draw, _copied(material.folder, place))
    try:
        found = material.load(place)
    except (FormatError, OSError, ValueError):
        return f"{what}: error"
    if found in material.good:
        return f"{what}: unharmed or an older one"
    if what == "cut" and found in material.after_cut:
        return "cut: an earlier state"
    raise AssertionError(f"a {what} in {where} loaded silently")


def main(count: int, seed: int) -> None:
    """Damage files so many times, and report."""
    logging.disable(logging.WARNING)
    print(f"files: {count} flips, cuts and swaps, seed {seed}", flush=True)
    draw, begun = random.Random(seed), time.monotonic()
    with warm_start.servers(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state, tables = server_files(folder)
        materials = {
            "state of a server": state,
            "saved tables": tables,
            "checkpoints": checkpoint_files(folder),
            "models in Paddle's formats": paddle_files(folder),
        }
        for title, material in materials.items():
            assert material.load(_copied(material.folder, folder / "whole")) in material.good
            shutil.rmtree(folder / "whole")
            results = Counter(
                attack(draw, material, folder / "damaged") for _ in range(count // len(materials))
            )
            print(f"files, {title}: {dict(sorted(results.items()))}", flush=True)
    print(f"files: {count} damages, {time.monotonic() - begun:.0f} s, none loaded silently")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 2000, int(sys.argv[2]) if sys.argv[2:] else 1)
