"""A small model with a dense part and rows, trained by any mode; and the same without servers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fleetx.checkpoint import manifest
from fleetx.ps.client.client import Client, ClientSettings
from fleetx.ps.client.row_fetcher import RowFetcher
from fleetx.ps.modes.async_mode import AsyncMode, AsyncSettings
from fleetx.ps.modes.geo_mode import GeoMode
from fleetx.ps.modes.half_async_mode import HalfAsyncMode
from fleetx.ps.modes.mode import Mode
from fleetx.ps.modes.sync_mode import SyncMode
from fleetx.ps.tables.make_table import create_table
from fleetx.ps.tables.table_spec import (
    BlockSpec,
    ClipSpec,
    DenseTableSpec,
    InitializerSpec,
    OptimizerSpec,
    SparseTableSpec,
)
from fleetx.ps.wire.partition import RoundRobin, slice_parameter

SHAPES = {"w": (12, 3), "b": (3,)}
IDS = 50
ROWS = 8


def _optimizer(kind: str, rate: float) -> OptimizerSpec:
    """Return the settings of a kind; "sgd+clip" clips by the norm of all gradients."""
    kind, _, clipped = kind.partition("+")
    clip = ClipSpec(kind="global_norm", limit=0.3) if clipped else None
    return OptimizerSpec(kind=kind, rate=rate, clip=clip)


def sparse_spec(kind: str = "sgd") -> SparseTableSpec:
    uniform = InitializerSpec(kind="uniform", settings={"low": -0.1, "high": 0.1})
    optimizer = _optimizer(kind, 0.2)
    return SparseTableSpec(
        name="rows", dim=4, dtype="float64", initializer=uniform, optimizer=optimizer, seed=7
    )


def dense_specs(servers: int, kind: str = "sgd", sliced: bool = True) -> list[DenseTableSpec]:
    slices = [
        part
        for name, shape in SHAPES.items()
        for part in slice_parameter(
            name, shape, servers=servers, slice_var_up=sliced, min_block_size=3
        )
    ]
    places = RoundRobin(servers).dispatch(part.name for part in slices)
    return [
        DenseTableSpec(
            name="dense",
            dtype="float64",
            optimizer=_optimizer(kind, 0.1),
            blocks=tuple(
                BlockSpec(name=p.name, parameter=p.parameter, shape=p.shape, start=p.start)
                for p, place in zip(slices, places, strict=True)
                if place == server
            ),
        )
        for server in range(servers)
    ]


def first_values() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {
        name: torch.randn(shape, dtype=torch.float64, generator=generator)
        for name, shape in SHAPES.items()
    }


def batch(step: int, worker: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + worker)
    ids = torch.randint(0, IDS, (ROWS, 3), generator=generator)
    return ids, torch.randn(ROWS, 3, dtype=torch.float64, generator=generator)


def gradients(
    values: dict[str, torch.Tensor], rows: torch.Tensor, target: torch.Tensor
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    rows = rows.clone().requires_grad_()
    out = torch.tanh(rows.reshape(len(rows), -1)) @ leaves["w"] + leaves["b"]
    ((out - target) ** 2).mean().backward()
    return {name: leaf.grad for name, leaf in leaves.items()}, rows.grad


def make_mode(name: str, client: Client, servers: int, **given: Any) -> Mode:
    kinds = {name: given.pop(name, "sgd") for name in ("dense", "rows")}
    sliced = given.pop("sliced", True)
    tables = ([dense_specs(servers, kinds["dense"], sliced)], [sparse_spec(kinds["rows"])])
    if name == "async":
        return AsyncMode(client, *tables, settings=AsyncSettings(**given))
    made = {"sync": SyncMode, "half_async": HalfAsyncMode, "geo": GeoMode}[name]
    return made(client, *tables, **given)


def train(
    mode: Mode,
    steps: int,
    before_step: Callable[[int], None] = lambda step: None,
) -> dict[str, torch.Tensor]:
    """Train; return the values at the end, which for `sync` is after all workers' steps."""
    values = first_values()
    worker = mode.client.worker
    fetcher = RowFetcher(mode)
    for step in range(mode.start(values), steps):
        before_step(step)
        ids, target = batch(step, worker)
        mode.pull_dense()
        if step + 1 < steps:
            fetcher.expect("rows", batch(step + 1, worker)[0].reshape(-1))
        fetch = fetcher.fetch("rows", ids.reshape(-1))
        rows = fetch.rows.wait()[fetch.places].reshape(*ids.shape, -1)
        found, row_gradients = gradients(values, rows, target)
        if isinstance(mode, GeoMode):
            for name, gradient in found.items():
                values[name] -= 0.1 * gradient
        mode.push_dense(found)
        mode.push_sparse("rows", ids, row_gradients)
        mode.step_end()
    mode.pull_dense()
    return values | {"rows": mode.pull_sparse("rows", torch.arange(IDS))}


def train_alone(
    steps: int, workers: int, dense: str = "sgd", rows: str = "sgd"
) -> dict[str, torch.Tensor]:
    """Do the same without servers, with all workers' batches at once."""
    values = first_values()
    table = create_table(dense_specs(1, dense, False)[0])
    row_table = create_table(sparse_spec(rows))
    for name, value in values.items():
        table.assign(name, value)
    for step in range(steps):
        batches = [batch(step, worker) for worker in range(workers)]
        ids = torch.cat([ids for ids, _ in batches])
        values = {name: table.pull(name) for name in values}
        pulled = row_table.pull(ids.reshape(-1)).reshape(*ids.shape, 4)
        targets = torch.cat([target for _, target in batches])
        found, row_gradients = gradients(values, pulled, targets)
        flat, row_gradients = ids.reshape(-1), row_gradients.reshape(-1, 4)
        norm = (table.square_norm(found) + row_table.square_norm(flat, row_gradients)) ** 0.5
        table.push(found, norm=norm)
        row_table.push(flat, row_gradients, norm=norm)
    return {n: table.pull(n) for n in values} | {"rows": row_table.pull(torch.arange(IDS))}


def begin_step(
    folder: Path, worker: int, step: int, is_needed: Callable[[], bool] = lambda: False
) -> None:
    """Leave a file for a step, and wait while the file hold<step> is there.

    `is_needed` ends the wait of a worker that others wait for.
    """
    (folder / f"worker{worker}-step{step}").touch()
    while (folder / f"hold{step}").exists() and not is_needed():
        threading.Event().wait(0.02)


def worker_process(
    endpoints: list[str],
    worker: int,
    workers: int,
    steps: int,
    folder: str,
    mode: str = "sync",
    settings: dict[str, Any] | None = None,
    client: dict[str, Any] | None = None,
) -> None:
    """Train as a process of its own; leaves the result and a file per step in `folder`.

    A step waits while the file hold<step> is there.
    """
    made = Client(
        endpoints, worker=worker, workers=workers, settings=ClientSettings(**(client or {}))
    )
    marks = Path(folder)

    def before_step(step: int) -> None:
        begin_step(marks, worker, step)

    trained = make_mode(mode, made, len(endpoints), **(settings or {}))
    result = train(trained, steps, before_step)
    manifest.save_state(marks / f"result{worker}", result)
    trained.stop()


def result(folder: str | os.PathLike[str], worker: int) -> dict[str, torch.Tensor]:
    return manifest.load_state(Path(folder) / f"result{worker}")[0]
