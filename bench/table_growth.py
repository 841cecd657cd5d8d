"""A sparse table that grows: speed, memory and restart with 1, 10, 30 and 100 million ids.

Rows have 16 numbers and Adagrad's state. At each size: rows pulled and pushed per second of CPU
time, against the same table with a million ids; bytes per row, against the raw floats; and the
seconds that a server needs to restore it from a snapshot. 100 million ids need 16 GB of memory, and
twice that for the snapshot (`--largest 30` stops earlier; `--no-restart` measures no restart).

    python bench/table_growth.py [--largest 100] [--rounds 15] [--no-restart]

Writes bench/results/table_growth.json, with a plot next to it (needs matplotlib, the extra
"bench").
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from record import RESULTS, write_record
from sparse_table import BATCH, DIM, WARM_UP, resident, row, seconds
from static_graph import show

from fleetx.checkpoint import manifest
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.table_spec import InitializerSpec, OptimizerSpec, SparseTableSpec

MILLION = 1_000_000
SIZES = (1, 10, 30, 100)
RAW = 2 * DIM * 4
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


def grow(table: SparseTable, size: int) -> None:
    """Train all ids up to a number once."""
    grads = torch.ones(1 << 18, DIM)
    for part in ids_of(torch.arange(len(table), size)).split(len(grads)):
        table.push(part, grads[: len(part)])


def speed(table: SparseTable, rounds: int) -> float:
    """Return the rows that are pulled and pushed per second of CPU time."""
    grads = torch.randn(BATCH, DIM)
    times = []
    for _ in range(rounds + WARM_UP):
        batch = ids_of(torch.randint(len(table), (BATCH,)).unique())

        def train(batch: torch.Tensor = batch) -> None:
            table.pull(batch)
            table.push(batch, grads[: len(batch)])

        times.append(seconds(train) / len(batch))
    return 1 / statistics.median(times[WARM_UP:])


def restart(table: SparseTable) -> float:
    """Return the seconds in which a new process's table loads a snapshot of this one."""
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        manifest.save_state(Path(folder, "snapshot"), table.state_dict())
        begun = time.perf_counter()
        new_table().load_state_dict(manifest.load_state(Path(folder, "snapshot"))[0])
        return time.perf_counter() - begun


def plot(points: list[dict[str, float]], path: Path) -> None:
    """Plot speed and bytes per row over the number of ids; without matplotlib, print a note."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: install matplotlib (the extra 'bench').", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.5))
    sizes = [point["ids"] for point in points]
    left.plot(sizes, [point["speed"] / 1e6 for point in points], marker="o")
    left.set(xscale="log", xlabel="ids", ylabel="million rows per second", ylim=(0, None))
    right.plot(sizes, [point["bytes"] for point in points], marker="o", label="a row")
    right.axhline(RAW, linestyle=":", label="its floats")
    right.set(xscale="log", xlabel="ids", ylabel="bytes", ylim=(0, None))
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def rows_of(points: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Return the figures as rows of a contest, each against the first size or the raw floats."""
    first, rows = points[0], []
    for point in points:
        size = f"{point['ids'] / MILLION:g} M ids"
        if point is not first:
            figures = {"ours": point["speed"], "peer": first["speed"]}
            ratio = point["speed"] / first["speed"]
            what = f"rows pulled and pushed per second, {size}"
            rows.append(row(what, "with 1 M ids", 0.85, ratio=ratio, **figures))
        figures = {"ours": point["bytes"], "peer": RAW, "ratio": point["bytes"] / RAW}
        what = f"bytes per row, {size}"
        rows.append(row(what, "raw floats", 1.2, **{**figures, "higher_is_better": False}))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=100, help="millions of ids")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--no-restart", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    RESULTS.mkdir(exist_ok=True)
    warm_up = new_table()  # loads what the first use of a table loads
    grow(warm_up, 1 << 18)
    speed(warm_up, 1)
    del warm_up
    table, before, points = new_table(), resident(), []
    for size in (size * MILLION for size in SIZES if size <= given.largest):
        grow(table, size)
        point: dict[str, float] = {"ids": size, "bytes": (resident() - before) / size}
        point["speed"] = speed(table, given.rounds)
        if not given.no_restart:
            point["restart"] = restart(table)
        print(", ".join(f"{name} {value:,.1f}" for name, value in point.items()), flush=True)
        points.append(point)
    rows = rows_of(points)
    show(rows, "A table that grows")
    write_record("table_growth", rounds=given.rounds, points=points, rows=rows)
    plot(points, RESULTS / "table_growth.png")


if __name__ == "__main__":
    main()
