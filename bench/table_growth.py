"""A sparse table that grows, and a job on it, with 1, 10, 30 and 100 million ids.

Rows have 16 numbers and Adagrad's state. At each size:

1. a table alone: rows pulled and pushed per second of CPU time, against the same table with a
   million ids; bytes per row, against the raw floats;
2. a job of one server and one worker that trains a CTR model (26 slots, batch 512, 416-128-64-2) on
   random ids of the table: samples per second, against the same job with a million ids.

100 million ids need 16 GB of memory (`--largest 30` stops earlier).

    python bench/table_growth.py [--largest 100] [--rounds 15] [--only table,job]

Writes bench/results/table_growth.json, with a plot next to it (needs matplotlib, the extra
"bench"); figures of the part that was not run are kept.
"""

import argparse
import itertools
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from contest import free_ports
from record import RESULTS, write_record
from sparse_table import BATCH, DIM, WARM_UP, resident, row, seconds
from static_graph import show

from fleetx.ps.client.client import Client
from fleetx.ps.server.server import run_server
from fleetx.ps.server.server_settings import ServerSettings
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.table_spec import InitializerSpec, OptimizerSpec, SparseTableSpec

MILLION = 1_000_000
SIZES = (1, 10, 30, 100)
RAW = 2 * DIM * 4
SAMPLES, SLOTS = 512, 26
# A table grows by pushes of this many ids, about a batch of a worker: malloc keeps a part of what
# requests need, and that of larger ones would be counted as memory of rows.
AT_ONCE = 1 << 14
_SPREAD = 0x5851F42D4C957F2D


def new_table() -> SparseTable:
    uniform = InitializerSpec(kind="uniform", settings={"low": -0.1, "high": 0.1})
    optimizer = OptimizerSpec(kind="adagrad")
    return SparseTable(
        SparseTableSpec(name="bench", dim=DIM, initializer=uniform, optimizer=optimizer)
    )


def ids_of(numbers: torch.Tensor) -> torch.Tensor:
    """Return ids without a pattern, different for different numbers."""
    return numbers * _SPREAD  # odd, so that no two products are equal modulo 2**64


def untrained(known: int, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield ids from a number to another, and gradients; little memory at a time, at any size."""
    for start in range(known, size, AT_ONCE):
        ids = ids_of(torch.arange(start, min(start + AT_ONCE, size)))
        yield ids, torch.ones(len(ids), DIM)


def grow(table: SparseTable, size: int) -> None:
    """Train all ids up to a number once."""
    for ids, grads in untrained(len(table), size):
        table.push(ids, grads)


def speed(table: SparseTable, rounds: int) -> float:
    """Return the rows pulled and pushed per second of CPU time."""
    grads = torch.randn(BATCH, DIM)
    times = []
    for _ in range(rounds + WARM_UP):
        batch = ids_of(torch.randint(len(table), (BATCH,)).unique())

        def train(batch: torch.Tensor = batch) -> None:
            table.pull(batch)
            table.push(batch, grads[: len(batch)])

        times.append(seconds(train) / len(batch))
    return 1 / statistics.median(times[WARM_UP:])


def measure_table(sizes: list[int], rounds: int) -> Iterator[dict[str, float]]:
    """Yield bytes per row and speed of a table at each size."""
    warm_up = new_table()  # loads what the first use of a table loads
    grow(warm_up, 1 << 18)
    speed(warm_up, 1)
    del warm_up
    table, before = new_table(), resident()
    for size in sizes:
        grow(table, size)
        bytes_per_row = (resident() - before) / size
        yield {"ids": size, "bytes": bytes_per_row, "speed": speed(table, rounds)}


def perceptron() -> torch.nn.Module:
    sizes, layers = (SLOTS * DIM, 128, 64), []
    for before, after in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], 2))


def samples_per_second(client: Client, size: int, rounds: int) -> float:
    """Return the median speed of training on random ids, in windows of ten steps."""
    model, labels = perceptron(), torch.randint(2, (SAMPLES,))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    rates = []
    for _ in range(rounds + WARM_UP):
        batches = [ids_of(torch.randint(size, (SAMPLES * SLOTS,))) for _ in range(10)]
        begun = time.perf_counter()
        for ids in batches:
            rows = client.pull_sparse("bench", ids).requires_grad_()
            optimizer.zero_grad()
            logits = model(rows.view(SAMPLES, -1))
            torch.nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()
            assert rows.grad is not None
            client.push_sparse("bench", ids, rows.grad)
        rates.append(len(batches) * SAMPLES / (time.perf_counter() - begun))
    return statistics.median(rates[WARM_UP:])


def measure_job(sizes: list[int], rounds: int) -> Iterator[dict[str, float]]:
    """Yield the speed of a job at each size of its table."""
    endpoint = f"127.0.0.1:{free_ports(1)[0]}"
    settings = ServerSettings(allow_insecure=True)
    server = multiprocessing.get_context("fork").Process(
        target=run_server, args=(endpoint, settings), daemon=True
    )
    server.start()
    client = Client([endpoint])
    try:
        client.create(new_table().spec)
        known = 0
        for size in sizes:
            for ids, grads in untrained(known, size):
                client.push_sparse("bench", ids, grads)
            known = size
            yield {"ids": size, "samples": samples_per_second(client, size, rounds)}
        client.finish()
        server.join(60)
    finally:
        server.kill()


def plot(points: list[dict[str, float]], path: Path) -> None:
    """Plot speed and bytes per row over the number of ids; without matplotlib, print a note."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: install matplotlib (the extra 'bench').", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(12, 3.5))
    sizes = [point["ids"] for point in points]
    left.plot(sizes, [point["speed"] / 1e6 for point in points], marker="o")
    left.set(xscale="log", xlabel="ids", ylabel="million rows per second", ylim=(0, None))
    middle.plot(sizes, [point["samples"] for point in points], marker="o")
    middle.set(xscale="log", xlabel="ids", ylabel="samples per second of a job", ylim=(0, None))
    right.plot(sizes, [point["bytes"] for point in points], marker="o", label="a row")
    right.axhline(RAW, linestyle=":", label="its floats")
    right.set(xscale="log", xlabel="ids", ylabel="bytes", ylim=(0, None))
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


SPEEDS = {
    "speed": "rows pulled and pushed per second",
    "samples": "samples per second of a job, 1 server + 1 worker",
}


def rows_of(points: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Return the figures as rows of a contest, each against the first size or the raw floats."""
    first, rows = points[0], []
    for point in points:
        size = f"{point['ids'] / MILLION:g} M ids"
        for key, name in SPEEDS.items():
            if point is not first and key in point:
                figures = {"ours": point[key], "peer": first[key], "ratio": point[key] / first[key]}
                rows.append(row(f"{name}, {size}", "with 1 M ids", 0.85, **figures))
        if "bytes" in point:
            figures = {"ours": point["bytes"], "peer": RAW, "ratio": point["bytes"] / RAW}
            what = f"bytes per row, {size}"
            rows.append(row(what, "raw floats", 1.2, **{**figures, "higher_is_better": False}))
    return rows


def measured_before() -> dict[float, dict[str, float]]:
    """Return the points of the last run, by their number of ids."""
    path = RESULTS / "table_growth.json"
    points = json.loads(path.read_text())["points"] if path.exists() else []
    return {point["ids"]: point for point in points}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=100, help="millions of ids")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="table,job", help="what to measure")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    RESULTS.mkdir(exist_ok=True)
    parts = {"table": measure_table, "job": measure_job}
    if not set(given.only.split(",")) <= set(parts):
        parser.error(f"--only {given.only}: choose from {','.join(parts)}.")
    sizes, points = [size * MILLION for size in SIZES if size <= given.largest], measured_before()
    for part in given.only.split(","):
        for point in parts[part](sizes, given.rounds):
            print(", ".join(f"{name} {value:,.1f}" for name, value in point.items()), flush=True)
            points.setdefault(point["ids"], {}).update(point)
    everything = [points[size] for size in sorted(points)]
    rows = rows_of(everything)
    show(rows, "A table that grows")
    write_record("table_growth", rounds=given.rounds, points=everything, rows=rows)
    if all({"speed", "samples"} <= point.keys() for point in everything):
        plot(everything, RESULTS / "table_growth.png")


if __name__ == "__main__":
    main()
