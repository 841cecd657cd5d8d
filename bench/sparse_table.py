"""Speed of a sparse table on one core, and its memory.

1. Looking up ids, against a Python dict.
2. Pulling and pushing rows of 16 numbers (a CTR model's batch: 26 slots, 512 examples), against
   torch's `index_select` and `index_add_` on a tensor, which need no look-up: the bound. Once with
   what the rounds before have left in the processor's caches, and once with cold caches, as between
   two requests of a job.
3. The same with Adagrad and memory for a third of the rows, the others in a file, when nine of ten
   ids of a batch are among those in use, against the same table in memory. The file is small
   enough for the system's cache: a slow disk is not measured.
4. The memory of a row with Adagrad's state, against the raw floats, from the process's growth.

A million ids; the contestants take turns, and medians are reported. Times are the CPU time of this
thread, which other load on the machine affects little.

    python bench/sparse_table.py [--rounds 15]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from record import RESULTS, write_record
from static_graph import show

from fleetx.kernels.index import IdIndex
from fleetx.ps.tables.row_memory import RowMemory
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.table_spec import InitializerSpec, OptimizerSpec, SparseTableSpec

IDS = 1_000_000
DIM = 16
BATCH = 26 * 512
# The fraction of the bound to reach.
GOALS = {"sgd": 1.0, "adagrad": 0.6, "adam": 0.6, "ftrl": 0.6}
WARM_UP = 2  # rounds that are not counted
CACHES = 256 << 20
"""Bytes that are touched to evict all others from the processor's caches."""


def resident() -> int:
    """Return the memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def seconds(call: Callable[[], Any]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


def in_turn(
    rounds: int,
    ours: Callable[[], Any],
    peer: Callable[[], Any],
    before: Callable[[], Any] = lambda: None,
) -> dict[str, float]:
    """Return rates and their ratio, as medians over interleaved rounds; `before` runs before each
    of them."""
    times: list[tuple[float, float]] = []
    for number in range(rounds + WARM_UP):
        before()
        own = seconds(ours)
        before()
        spent = own, seconds(peer)
        if number >= WARM_UP:
            times.append(spent)
    return {
        "ours": BATCH / statistics.median(own for own, _ in times),
        "peer": BATCH / statistics.median(other for _, other in times),
        "ratio": statistics.median(other / own for own, other in times),
    }


def make(kind: str, ids: torch.Tensor, memory: RowMemory | None = None) -> SparseTable:
    """Return a table that has all ids."""
    table = SparseTable(
        SparseTableSpec(
            name="bench",
            dim=DIM,
            initializer=InitializerSpec(kind="uniform", settings={"low": -0.1, "high": 0.1}),
            optimizer=OptimizerSpec(kind=kind),
        ),
        memory,
    )
    for part in ids.split(BATCH):
        table.push(part, torch.ones(len(part), DIM))
    return table


def row(what: str, peer_name: str, goal: float, **more: Any) -> dict[str, Any]:
    ready = {"what": what, "ours_name": "fleetx", "peer_name": peer_name, "goal": goal}
    return {**ready, "higher_is_better": True, **more}


def memory(ids: torch.Tensor) -> dict[str, Any]:
    before = resident()
    table = make("adagrad", ids)
    per_row = (resident() - before) / len(table)
    raw = 2 * DIM * 4
    figures = {"ours": per_row, "peer": raw, "ratio": per_row / raw, "higher_is_better": False}
    return row("bytes per row, Adagrad", "raw floats", 1.3, **figures)


def lookups(ids: torch.Tensor, rounds: int) -> dict[str, Any]:
    index = IdIndex()
    index.insert(ids)
    mapping = {key: number for number, key in enumerate(ids.tolist())}
    wanted = ids[torch.randint(IDS, (BATCH,))]
    plain = wanted.tolist()
    figures = in_turn(rounds, lambda: index.lookup(wanted), lambda: [mapping[key] for key in plain])
    return row("ids looked up per second", "a dict", 3.0, **figures)


def batches(numbers: torch.Tensor) -> Iterator[torch.Tensor]:
    while True:
        yield numbers[torch.randperm(len(numbers))[:BATCH]]


def pull_and_push(
    kind: str, ids: torch.Tensor, rounds: int, *, is_cold: bool = False
) -> dict[str, Any]:
    table, weight = make(kind, ids), torch.randn(IDS, DIM)
    grads = torch.randn(BATCH, DIM)
    keys = [next(batches(ids)) for _ in range(rounds + WARM_UP)]
    places = [next(batches(torch.arange(IDS))) for _ in range(rounds + WARM_UP)]
    next_keys, next_places = iter(keys), iter(places)

    def ours() -> None:
        batch = next(next_keys)
        table.pull(batch)
        table.push(batch, grads)

    def bound() -> None:
        batch = next(next_places)
        weight.index_select(0, batch)
        weight.index_add_(0, batch, grads)

    other = torch.zeros(CACHES if is_cold else 0, dtype=torch.uint8)
    figures = in_turn(rounds, ours, bound, lambda: other.add_(1))
    what = f"rows pulled and pushed per second, {kind}" + ", cold caches" * is_cold
    return row(what, "torch's bound", GOALS[kind], **figures)


def rows_on_disk(ids: torch.Tensor, rounds: int) -> dict[str, Any]:
    """Compare a table that has a third of its rows in memory with one that has all."""
    hot, cold, tenth = ids[: IDS // 5], ids[IDS // 5 :], BATCH // 10
    grads = torch.randn(BATCH, DIM)
    keys = []
    for _ in range(3 * rounds + WARM_UP):
        often, seldom = next(batches(hot))[tenth:], next(batches(cold))[:tenth]
        keys.append(torch.cat([often, seldom])[torch.randperm(BATCH)])
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        limited = make("adagrad", ids, RowMemory(IDS * DIM * 8 // 3, folder))
        whole = make("adagrad", ids)
        for part in (*cold.split(BATCH), *hot.split(BATCH)):
            limited.push(part, grads[: len(part)])

        def trainer(table: SparseTable) -> Callable[[], None]:
            next_keys = iter(keys)

            def train() -> None:
                batch = next(next_keys)
                table.pull(batch)
                table.push(batch, grads)

            return train

        figures = in_turn(3 * rounds, trainer(limited), trainer(whole))
    what = "rows pulled and pushed per second, adagrad, 2/3 of the rows in a file, 90 % hot hits"
    return row(what, "all in memory", 0.5, **figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ids = torch.randint(-(2**63), 2**63 - 1, (IDS,)).unique()
    ids = torch.cat([ids, torch.arange(IDS - len(ids))])[torch.randperm(IDS)]
    rows = [memory(ids), lookups(ids, rounds)]
    rows += [pull_and_push(kind, ids, rounds) for kind in GOALS]
    rows += [pull_and_push(kind, ids, rounds, is_cold=True) for kind in GOALS]
    RESULTS.mkdir(exist_ok=True)
    rows.append(rows_on_disk(ids, rounds))
    show(rows, "Sparse table")
    write_record("sparse_table", rounds=rounds, rows=rows)


if __name__ == "__main__":
    main()
